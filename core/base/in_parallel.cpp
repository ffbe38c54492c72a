#include "core/base/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

namespace consist {

void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t n = next++; n < count; n = next++) work(n);
  };
  const std::size_t workers = std::min(count, static_cast<std::size_t>(std::max(threads, 1)));
  std::vector<std::future<void>> others;
  for (std::size_t w = 1; w < workers; ++w) others.push_back(std::async(std::launch::async, run));
  run();
  for (std::future<void>& other : others) other.get();
}

}  // namespace consist
