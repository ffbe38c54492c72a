// Observers: all are told in order; one that fails is reported with its name and switched off, and the others go on.
#include "core/record/observers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "consist/error.h"

namespace consist {
namespace {

class Notes final : public Observer {
 public:
  Notes(std::vector<std::string>& notes, std::int64_t fails_at) : notes_(notes), fails_at_(fails_at) {}
  void step(const ObservedStep& step) override {
    if (step.step == fails_at_) throw std::runtime_error("the disk is full");
    notes_.push_back("step " + std::to_string(step.step));
  }
  void end(std::string_view status, std::string_view /*reason*/) override { notes_.emplace_back(status); }

 private:
  std::vector<std::string>& notes_;
  std::int64_t fails_at_;
};

TEST(Observers, OneThatFailsIsSwitchedOffAndTheOthersGoOn) {
  std::vector<std::string> good, bad;
  Observers observers;
  observers.add("bad", std::make_shared<Notes>(bad, 2));
  observers.add("good", std::make_shared<Notes>(good, 0));
  ::testing::internal::CaptureStderr();
  for (const std::int64_t step : {1, 2, 3}) observers.tell([&](Observer& observer) { observer.step({.step = step}); });
  observers.tell([](Observer& observer) { observer.end("finished", ""); });
  const std::string output = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(good, ::testing::ElementsAre("step 1", "step 2", "step 3", "finished"));
  EXPECT_THAT(bad, ::testing::ElementsAre("step 1"));
  EXPECT_THAT(output, ::testing::AllOf(::testing::HasSubstr("observer 'bad' failed and is switched off"),
                                       ::testing::HasSubstr("the disk is full")));
  EXPECT_THAT(output, ::testing::Not(::testing::HasSubstr("good")));
}

TEST(Observers, WithoutAnyNothingHappens) {
  Observers observers;
  EXPECT_TRUE(observers.empty());
  observers.tell([](Observer& observer) { observer.end("finished", ""); });
}

}  // namespace
}  // namespace consist
