// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

namespace memstrata::test {

inline constexpr int thread_count = 8;

/// Whether much more than usual is asked for.
[[nodiscard]] inline bool soaking() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment here
  return std::getenv("MEMSTRATA_SOAK") != nullptr;
}

/// `ordinary` rounds, more of them in a soak, fewer where each costs many times as much.
[[nodiscard]] inline int rounds(int ordinary) {
#if defined(__SANITIZE_THREAD__)
  constexpr int slower = 8;
#else
  constexpr int slower = 1;
#endif
  return (soaking() ? ordinary * 20 : ordinary) / slower;
}

/// Runs `work(thread number)` in `count` threads at once and waits for all.
inline void in_threads(int count, const std::function<void(int)>& work) {
  std::latch start(count);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int number = 0; number < count; ++number) {
    threads.emplace_back([&start, &work, number] {
      start.arrive_and_wait();
      work(number);
    });
  }
}

}  // namespace memstrata::test
