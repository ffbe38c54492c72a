// A job of one rank within the process, for tests of what ranks tell one another.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/error.h"
#include "core/job/job.h"

namespace consist::test {

class LoneJob : public Job {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  int local_rank() const noexcept override { return rank(); }
  int local_size() const noexcept override { return size(); }
  std::string_view host() const noexcept override { return "here"; }
  std::span<const int> host_ranks() const noexcept override { return host_ranks_; }
  int generation() const noexcept override { return 0; }
  std::string_view token() const noexcept override { return ""; }
  std::vector<std::string> gather(std::string_view /*name*/, std::string_view bytes, std::chrono::milliseconds /*timeout*/,
                                  std::span<const int> /*members*/) override {
    return {std::string(bytes)};
  }
  std::string broadcast(std::string_view /*name*/, std::string_view bytes, std::chrono::milliseconds /*timeout*/,
                        std::span<const int> /*members*/) override {
    return std::string(bytes);
  }
  void put(std::string_view key, std::string_view value) override { values_[std::string(key)] = value; }
  std::string get(std::string_view key, std::chrono::milliseconds /*timeout*/) override { return values_.at(std::string(key)); }
  void barrier(std::string_view name, std::chrono::milliseconds /*timeout*/) override {
    EXPECT_TRUE(entered_.emplace(name).second) << "a name is used once: " << name;
  }
  bool failed() const noexcept override { return false; }
  void check() const override {}
  [[noreturn]] void blame(int /*peer*/, std::string_view what) override { throw PeerError(0, std::string(what)); }
  void set_progress(std::function<std::string()> /*progress*/) override {}
  std::chrono::milliseconds timeout() const noexcept override { return std::chrono::milliseconds(1000); }

 private:
  const std::vector<int> host_ranks_{0};
  std::map<std::string, std::string> values_;
  std::set<std::string> entered_;
};

}  // namespace consist::test
