// A loop whose iterations are spread over the threads of XLA's pool.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace hmmjax {

namespace ffi = xla::ffi;
using Buffer = ffi::AnyBuffer;
using Result = ffi::Result<ffi::AnyBuffer>;

// Calls work(i) for i = 0 ... n - 1 on the calling thread and on those of the pool that are free. Waits for calls that
// have begun, not for tasks that have not, so that it cannot wait for itself.
class Loop {
 public:
  static void run(ffi::ThreadPool& pool, int64_t n, std::function<void(int64_t)> work) {
    auto loop = std::make_shared<Loop>();
    loop->n_ = n, loop->work_ = std::move(work);
    const int64_t helpers = std::min<int64_t>(pool.num_threads(), n) - 1;
    for (int64_t i = 0; i < helpers; ++i) pool.Schedule([loop] { loop->help(); });
    loop->help();
    std::unique_lock<std::mutex> lock(loop->mutex_);
    loop->idle_.wait(lock, [&] { return loop->busy_ == 0; });
  }

 private:
  void help() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (next_ >= n_) return;
      ++busy_;
    }
    for (int64_t i; (i = next_++) < n_;) work_(i);
    std::lock_guard<std::mutex> lock(mutex_);
    if (--busy_ == 0) idle_.notify_all();
  }

  int64_t n_ = 0, busy_ = 0;
  std::function<void(int64_t)> work_;
  std::atomic<int64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
};

// Describes so many inputs and results, arrays all, of a function: with_arrays<inputs, results>(ffi::Ffi::Bind()...).
template <int inputs, int results, class Binding>
auto with_arrays(Binding&& binding) {
  constexpr bool is_input = inputs > 0;
  const auto longer = [&] {
    if constexpr (is_input)
      return std::move(binding).template Arg<Buffer>();
    else
      return std::move(binding).template Ret<Buffer>();
  };
  if constexpr (inputs + results == 1)
    return longer();
  else
    return with_arrays<inputs - is_input, results - !is_input>(longer());
}

}  // namespace hmmjax
