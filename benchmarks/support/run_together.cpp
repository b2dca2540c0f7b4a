// SPDX-License-Identifier: Apache-2.0
#include "support/run_together.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace memstrata::bench {
namespace {

/// The numbers of the processors that this process may use, lowest first.
std::vector<std::size_t> processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<std::size_t> numbers;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (std::size_t number = 0; number < CPU_SETSIZE; ++number) {
      if (CPU_ISSET(number, &allowed)) {
        numbers.push_back(number);
      }
    }
  }
  return numbers;
}

void stay_on(std::size_t processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  // Where it is not allowed the figures are only less steady.
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof only, &only));
}

}  // namespace

int usable_processors() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

std::vector<double> run_together(const std::vector<std::function<double()>>& bodies) {
  const std::vector<std::size_t> numbers = processors();
  const bool one_each = numbers.size() >= bodies.size();
  std::vector<double> results(bodies.size());
  std::atomic<std::size_t> waiting{bodies.size()};
  {
    std::vector<std::jthread> threads;
    threads.reserve(bodies.size());
    for (std::size_t index = 0; index < bodies.size(); ++index) {
      threads.emplace_back([&, index] {
        if (one_each) {
          stay_on(numbers[index]);
        }
        // They spin, because a thread that sleeps until the start begins tens of microseconds after the others.
        waiting.fetch_sub(1);
        while (waiting.load() != 0) {
        }
        results[index] = bodies[index]();
      });
    }
  }
  return results;
}

}  // namespace memstrata::bench
