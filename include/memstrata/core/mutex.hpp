// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

// Annotations that clang's -Wthread-safety checks; other compilers see nothing.
#if defined(__clang__)
#define MEMSTRATA_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define MEMSTRATA_THREAD_ANNOTATION(x)
#endif

#define MEMSTRATA_CAPABILITY(name) MEMSTRATA_THREAD_ANNOTATION(capability(name))
#define MEMSTRATA_SCOPED_CAPABILITY MEMSTRATA_THREAD_ANNOTATION(scoped_lockable)
#define MEMSTRATA_GUARDED_BY(mutex) MEMSTRATA_THREAD_ANNOTATION(guarded_by(mutex))
#define MEMSTRATA_PT_GUARDED_BY(mutex) MEMSTRATA_THREAD_ANNOTATION(pt_guarded_by(mutex))
#define MEMSTRATA_REQUIRES(...) MEMSTRATA_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define MEMSTRATA_ACQUIRE(...) MEMSTRATA_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define MEMSTRATA_RELEASE(...) MEMSTRATA_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define MEMSTRATA_EXCLUDES(...) MEMSTRATA_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define MEMSTRATA_NO_THREAD_SAFETY_ANALYSIS MEMSTRATA_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace memstrata {

/// A `std::mutex` that the thread-safety analysis knows. No callback, system call or allocation runs under one.
class MEMSTRATA_CAPABILITY("mutex") Mutex {
 public:
  Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  Mutex(Mutex&&) = delete;
  Mutex& operator=(Mutex&&) = delete;
  ~Mutex() = default;

  void lock() MEMSTRATA_ACQUIRE() { mutex_.lock(); }

  void unlock() MEMSTRATA_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a `Mutex` for a scope.
class MEMSTRATA_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MEMSTRATA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  MutexLock(MutexLock&&) = delete;
  MutexLock& operator=(MutexLock&&) = delete;

  ~MutexLock() MEMSTRATA_RELEASE() { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

}  // namespace memstrata
