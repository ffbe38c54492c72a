// An observer of a plugin is told all that the trainer tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/plugin/guarded.h"

namespace consist {
namespace {

using ::testing::ElementsAre;

/// Notes what it was told.
class NotingObserver final : public Observer {
 public:
  explicit NotingObserver(std::vector<std::string>& told) : told_(told) {}
  void begin(const ObservedRun& /*run*/) override { told_.emplace_back("begin"); }
  void step(const ObservedStep& /*step*/) override { told_.emplace_back("step"); }
  void evaluated(const ObservedEvaluation& /*evaluation*/) override { told_.emplace_back("evaluated"); }
  void sample(std::int64_t /*step*/, std::string_view text) override { told_.emplace_back(text); }
  void checkpoint(std::int64_t /*step*/, std::string_view folder) override { told_.emplace_back(folder); }
  std::string reason_to_end() const override { return "enough"; }
  void result(std::string_view json) override { told_.emplace_back(json); }
  void end(std::string_view status, std::string_view /*reason*/) override { told_.emplace_back(status); }

 private:
  std::vector<std::string>& told_;
};

TEST(GuardedObserver, IsToldEverything) {
  std::vector<std::string> told;
  static const PluginIdentity identity{"observer 'noting'", "noting.so"};
  const std::shared_ptr<Observer> observer = guarded(std::shared_ptr<Observer>(std::make_shared<NotingObserver>(told)), identity);
  observer->begin({});
  observer->step({});
  observer->evaluated({.step = 1, .loss = 2.0, .sequences = 3, .metrics = {}});
  observer->sample(1, "a sample");
  observer->checkpoint(1, "a folder");
  EXPECT_EQ(observer->reason_to_end(), "enough");
  observer->result("{}");
  observer->end("finished", "");
  EXPECT_THAT(told, ElementsAre("begin", "step", "evaluated", "a sample", "a folder", "{}", "finished"));
}

}  // namespace
}  // namespace consist
