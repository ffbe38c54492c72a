// Saving beside training.
#include "core/state/state_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "consist/error.h"
#include "core/checkpoint/checkpoint_reader.h"
#include "tests/idle_device.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class HostMemory : public test::IdleDevice {
 public:
  void* allocate(MemorySpace, std::int64_t bytes) override { return std::calloc(1, static_cast<std::size_t>(bytes)); }
  void release(MemorySpace, void* memory) noexcept override { std::free(memory); }
};

CheckpointState at_step(std::int64_t step) {
  CheckpointState state;
  state.step = step;
  state.config = "{}";
  return state;
}

class StateSaverTest : public ::testing::Test {
 protected:
  StateSaverTest() {
    tensors_.sources.push_back({"x", DType::f32, Shape{100}, [this](void* to, std::int64_t first, std::int64_t count) {
                                  std::copy_n(values_.begin() + first, count, static_cast<float*>(to));
                                }});
  }
  StateSaver make(const std::string& snapshots = "") const {
    return {*job_, std::make_unique<CheckpointWriter>(folder_ / "disk", 2),
            snapshots.empty() ? nullptr : std::make_unique<Snapshots>(*job_, snapshots)};
  }
  float first_of(const std::string& folder) const {
    float value = 0;
    latest_checkpoint(folder).value().open(checkpoint_file_name(0)).read_f32("x", 0, std::span(&value, 1));
    return value;
  }

  const std::unique_ptr<JoinedJob> job_ = join_job({});
  const std::shared_ptr<Device> device_ = std::make_shared<HostMemory>();
  const TemporaryFolder folder_;
  std::vector<float> values_ = std::vector<float>(100, 1.0F);
  OwnedTensors tensors_;
};

TEST_F(StateSaverTest, WritesTheStateAsItWasWhenItWasCopied) {
  StateSaver saver = make(folder_ / "memory");
  ASSERT_TRUE(saver.prepare(device_, tensors_, true));
  saver.save(tensors_, tensors_, at_step(1), StateSaver::Where::on_disk);
  values_[0] = 2;
  saver.finish();
  EXPECT_EQ(first_of(folder_ / "disk"), 1);
  EXPECT_EQ(first_of(folder_ / "memory"), 1) << "with each checkpoint a snapshot";
  const std::vector<StateSaver::Saved> saved = saver.take_saved();
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(saved[0].step, 1);
  EXPECT_GT(saved[0].bytes, 400);
  EXPECT_THAT(saver.take_saved(), IsEmpty());

  saver.save(tensors_, tensors_, at_step(2), StateSaver::Where::in_memory);
  saver.finish();
  EXPECT_EQ(first_of(folder_ / "memory"), 2);
  EXPECT_EQ(first_of(folder_ / "disk"), 1);
  EXPECT_THAT(saver.take_saved(), IsEmpty());
}

TEST_F(StateSaverTest, ASnapshotThatWouldTakeTooMuchOfTheTimeIsNotMade) {
  using enum StateSaver::Outcome;
  for (const double share : {0.0, 1e-9, 1e9}) {
    SCOPED_TRACE(share);
    StateSaver saver(*job_, nullptr, std::make_unique<Snapshots>(*job_, folder_ / ("memory" + std::to_string(share))), share);
    ASSERT_TRUE(saver.prepare(device_, tensors_, true));
    EXPECT_EQ(saver.save(tensors_, tensors_, at_step(1), StateSaver::Where::in_memory), saved) << "none is known to be dear yet";
    saver.finish();
    EXPECT_EQ(saver.save(tensors_, tensors_, at_step(2), StateSaver::Where::in_memory), share == 1e-9 ? too_soon : saved);
    saver.finish();
    EXPECT_EQ(saver.save(tensors_, tensors_, at_step(3), StateSaver::Where::in_memory_for_certain), saved);
  }
}

TEST_F(StateSaverTest, ASnapshotDoesNotWaitForTheOneBefore) {
  // Large, so that writing it takes a while; again, should this thread have stood still for so long.
  constexpr std::int64_t many = 16 << 20;
  tensors_.sources.push_back({"y", DType::f32, Shape{many}, [](void* to, std::int64_t, std::int64_t count) {
                                std::fill_n(static_cast<float*>(to), count, 3.0F);
                              }});
  StateSaver saver = make(folder_ / "memory");
  ASSERT_TRUE(saver.prepare(device_, tensors_, true));
  std::int64_t step = 0;
  using enum StateSaver::Outcome;
  StateSaver::Outcome second = saved;
  for (int tries = 0; second == saved && tries < 100; ++tries) {
    saver.finish();
    values_[0] = static_cast<float>(++step);
    ASSERT_EQ(saver.save(tensors_, tensors_, at_step(step), StateSaver::Where::in_memory), saved) << "nothing is being written";
    values_[0] = -1;
    second = saver.save(tensors_, tensors_, at_step(++step), StateSaver::Where::in_memory);
  }
  EXPECT_EQ(second, still_writing);
  saver.finish();
  EXPECT_EQ(first_of(folder_ / "memory"), static_cast<float>(step - 1)) << "the one that was being written is whole";
  ASSERT_EQ(saver.save(tensors_, tensors_, at_step(++step), StateSaver::Where::in_memory), saved);
  EXPECT_EQ(saver.save(tensors_, tensors_, at_step(++step), StateSaver::Where::on_disk), saved) << "a checkpoint waits";
  saver.finish();
  EXPECT_EQ(latest_checkpoint(folder_ / "disk").value().state().step, step);
  EXPECT_EQ(latest_checkpoint(folder_ / "memory").value().state().step, step);
}

TEST_F(StateSaverTest, WithoutACopyEverythingIsWrittenAtOnce) {
  StateSaver saver = make();
  ASSERT_TRUE(saver.prepare(device_, tensors_, false));
  saver.save(tensors_, tensors_, at_step(1), StateSaver::Where::on_disk);
  EXPECT_EQ(first_of(folder_ / "disk"), 1);
}

TEST_F(StateSaverTest, ThrowsLaterWhatSavingMet) {
  for (const bool waits : {true, false}) {
    StateSaver saver = make();
    ASSERT_TRUE(saver.prepare(device_, tensors_, true));
    std::filesystem::remove_all(folder_ / "disk");
    saver.save(tensors_, tensors_, at_step(1), StateSaver::Where::on_disk);
    const auto look = [&] {
      if (waits) saver.finish();
      for (int tries = 0; tries < 2000; ++tries) {
        saver.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    };
    EXPECT_THAT(look, ThrowsMessage<SystemError>(HasSubstr("cannot make the folder")));
    EXPECT_EQ(saver.settle(), nullptr) << "once";
  }
}

TEST_F(StateSaverTest, RefusesSnapshotsWithoutMemoryForThem) {
  StateSaver saver(*job_, nullptr, std::make_unique<Snapshots>(*job_, folder_ / "memory"));
  tensors_.sources.push_back({"y", DType::f32, Shape{std::int64_t{1} << 50}, {}});
  EXPECT_THAT([&] { saver.prepare(device_, tensors_, false); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("need"), HasSubstr("--snapshot-every 0"))));
}

}  // namespace
}  // namespace consist
