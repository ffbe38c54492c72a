// Values that many threads make arrive whole and in place, through little memory, and failures end the upload.
#include "core/state/staged_upload.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "consist/error.h"

namespace consist {
namespace {

/// Its memory is the host's; it counts what is uploaded, and by whom.
class HostDevice final : public Device {
 public:
  void open(int /*local_rank*/, int /*local_ranks*/) override {}
  DeviceInfo info() const override { return {}; }
  void* allocate(MemorySpace space, std::int64_t bytes) override {
    EXPECT_EQ(space, MemorySpace::host);
    held += bytes;
    sizes_[1] = bytes;
    return ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{256});
  }
  void release(MemorySpace /*space*/, void* memory) noexcept override {
    held -= sizes_[1];
    ::operator delete (memory, std::align_val_t{256});
  }
  void upload(void* to, const void* host, std::int64_t bytes) override {
    EXPECT_EQ(std::this_thread::get_id(), owner_);
    if (++uploads == failing_upload) throw SystemError("the device is gone");
    std::memcpy(to, host, static_cast<std::size_t>(bytes));
    uploaded_bytes += bytes;
  }
  void download(void* /*host*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& /*request*/) override { return nullptr; }
  std::unique_ptr<Executable> prepare(std::vector<Launch> /*launches*/, bool /*profile*/) override { return nullptr; }
  DeviceCounters counters() const override { return {}; }
  double measure_matmul(DType /*dtype*/, std::int64_t /*m*/, std::int64_t /*n*/, std::int64_t /*k*/) override { return 0; }

  std::int64_t held = 0, uploads = 0, uploaded_bytes = 0;
  std::int64_t failing_upload = 0;  ///< counted from 1; 0: none

 private:
  std::int64_t sizes_[2] = {};
  std::thread::id owner_ = std::this_thread::get_id();
};

class StagedUploadOn : public ::testing::TestWithParam<int> {
 protected:
  HostDevice device_;
};

/// Element i is 3i in the first target and i mod 251 in the second, if there is one.
void make_numbers(std::int64_t first, std::int64_t count, std::span<char* const> out) {
  ASSERT_LE(count, StagedUpload::most_elements);
  for (std::int64_t i = 0; i < count; ++i) {
    reinterpret_cast<std::uint32_t*>(out[0])[i] = static_cast<std::uint32_t>(3 * (first + i));
    if (out.size() > 1) out[1][i] = static_cast<char>((first + i) % 251);
  }
}

TEST_P(StagedUploadOn, AllValuesArrive) {
  // More than the ring holds, one element, nothing, and a few: each in one or two arrays.
  constexpr std::int64_t many = 13'000'001;
  std::vector<std::uint32_t> large(many), one(1), few(70'000);
  std::vector<char> bytes(many);
  {
    StagedUpload upload(device_, GetParam());
    EXPECT_EQ(device_.held, 48 << 20);
    upload.write(std::vector<StagedUpload::Target>{{large.data(), 4}, {bytes.data(), 1}}, many, make_numbers);
    upload.write(std::vector<StagedUpload::Target>{{one.data(), 4}}, 1, make_numbers);
    upload.write(std::vector<StagedUpload::Target>{{nullptr, 4}}, 0, make_numbers);
    upload.write(std::vector<StagedUpload::Target>{{few.data(), 4}}, 70'000, make_numbers);
    upload.finish();
  }
  EXPECT_EQ(device_.held, 0);
  EXPECT_EQ(device_.uploaded_bytes, 5 * many + 4 + 4 * 70'000);
  EXPECT_LE(device_.uploads, 2 * (5 * many / (15 << 20) + 1) + 2) << "uploads are large";
  const auto wrong = [](const std::vector<std::uint32_t>& values) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < values.size(); ++i) count += values[i] == static_cast<std::uint32_t>(3 * i) ? 0 : 1;
    return count;
  };
  EXPECT_EQ(wrong(large) + wrong(one) + wrong(few), 0);
  std::int64_t wrong_bytes = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) wrong_bytes += bytes[i] == static_cast<char>(i % 251) ? 0 : 1;
  EXPECT_EQ(wrong_bytes, 0);
}

TEST_P(StagedUploadOn, WorksOnAsManyThreadsAsItMay) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> inside{0};
  std::vector<std::uint32_t> values(std::size_t{64} * StagedUpload::most_elements);
  StagedUpload upload(device_, GetParam());
  upload.write(std::vector<StagedUpload::Target>{{values.data(), 4}}, static_cast<std::int64_t>(values.size()),
               [&](std::int64_t first, std::int64_t count, std::span<char* const> out) {
                 // Until all are inside at once; a thread too few never gets there.
                 if (++inside <= GetParam()) {
                   const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                   while (inside < GetParam() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
                 }
                 const std::lock_guard lock(mutex);
                 threads.insert(std::this_thread::get_id());
                 make_numbers(first, count, out);
               });
  upload.finish();
  EXPECT_EQ(static_cast<int>(threads.size()), GetParam());
  EXPECT_TRUE(threads.contains(std::this_thread::get_id()));
}

TEST_P(StagedUploadOn, WhatMakeThrowsComesOut) {
  std::vector<std::uint32_t> values(10'000'000);
  StagedUpload upload(device_, GetParam());
  const auto write_and_finish = [&] {
    upload.write(std::vector<StagedUpload::Target>{{values.data(), 4}}, static_cast<std::int64_t>(values.size()),
                 [](std::int64_t first, std::int64_t count, std::span<char* const> out) {
                   if (first <= 6'000'000 && 6'000'000 < first + count) throw DataError("no such element");
                   make_numbers(first, count, out);
                 });
    upload.finish();
  };
  EXPECT_THROW(write_and_finish(), DataError);
  EXPECT_THROW(upload.finish(), DataError) << "what is missing stays missing";
}

TEST_P(StagedUploadOn, ADeviceThatFailsEndsIt) {
  device_.failing_upload = 2;
  std::vector<std::uint32_t> values(20'000'000);
  StagedUpload upload(device_, GetParam());
  const auto write = [&] {
    upload.write(std::vector<StagedUpload::Target>{{values.data(), 4}}, static_cast<std::int64_t>(values.size()), make_numbers);
    upload.finish();
  };
  EXPECT_THROW(write(), SystemError);
}

TEST_P(StagedUploadOn, WhatIsNotFinishedIsGivenUp) {
  std::vector<std::uint32_t> values(8'000'000);
  {
    StagedUpload upload(device_, GetParam());
    upload.write(std::vector<StagedUpload::Target>{{values.data(), 4}}, static_cast<std::int64_t>(values.size()), make_numbers);
  }
  EXPECT_EQ(device_.held, 0);
}

TEST_P(StagedUploadOn, TooManyArraysAreAMistake) {
  StagedUpload upload(device_, GetParam());
  EXPECT_THROW(upload.write(std::vector<StagedUpload::Target>(3, {nullptr, 4}), 1, make_numbers), ProgramError);
  EXPECT_THROW(upload.write({}, 1, make_numbers), ProgramError);
}

INSTANTIATE_TEST_SUITE_P(Threads, StagedUploadOn, ::testing::Values(1, 2, 7));

}  // namespace
}  // namespace consist
