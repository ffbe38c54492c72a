// A job within a job: groups of several runs, one behind the other, keep apart what they say.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/job/job.h"

namespace consist::launch {

/// The same ranks, with names of its own for keys and barriers. The job outlives it.
class ScopedJob final : public JoinedJob {
 public:
  ScopedJob(JoinedJob& job, std::string scope) : job_(job), scope_(std::move(scope)) {}

  int rank() const noexcept override { return job_.rank(); }
  int size() const noexcept override { return job_.size(); }
  int local_rank() const noexcept override { return job_.local_rank(); }
  int local_size() const noexcept override { return job_.local_size(); }
  std::string_view host() const noexcept override { return job_.host(); }
  std::span<const int> host_ranks() const noexcept override { return job_.host_ranks(); }
  int generation() const noexcept override { return job_.generation(); }
  std::string_view token() const noexcept override { return job_.token(); }
  std::vector<std::string> gather(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                  std::span<const int> members) override {
    return job_.gather(scoped(name), bytes, timeout, members);
  }
  std::string broadcast(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                        std::span<const int> members) override {
    return job_.broadcast(scoped(name), bytes, timeout, members);
  }
  void put(std::string_view key, std::string_view value) override { job_.put(scoped(key), value); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override { return job_.get(scoped(key), timeout); }
  void barrier(std::string_view name, std::chrono::milliseconds timeout) override { job_.barrier(scoped(name), timeout); }
  /// The job itself goes on.
  void leave(std::chrono::milliseconds timeout) override { barrier("leave", timeout); }
  void fail(std::string_view reason) noexcept override { job_.fail(reason); }
  bool failed() const noexcept override { return job_.failed(); }
  void check() const override { job_.check(); }
  [[noreturn]] void blame(int peer, std::string_view what) override {
    job_.blame(peer, what);
    std::terminate();  // the compiler does not know that a virtual function never returns
  }
  void set_progress(std::function<std::string()> progress) override { job_.set_progress(std::move(progress)); }
  std::chrono::milliseconds timeout() const noexcept override { return job_.timeout(); }

 private:
  std::string scoped(std::string_view name) const { return scope_ + "/" + std::string(name); }

  JoinedJob& job_;
  const std::string scope_;
};

}  // namespace consist::launch
