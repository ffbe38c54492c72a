// Errors and bad results of a plugin are reported with its name.
#include "core/plugin/guarded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "consist/error.h"
#include "core/plugin/host.h"
#include "core/plugin/plugin_faults.h"
#include "core/plugin/signal_guard.h"
#include "tests/job/in_process.h"
#include "tests/plugin/test_plugins.h"

namespace consist {
namespace {

using test::Environment;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

const PluginIdentity a_test{"strategy 'a-test'", "/a/test.so"};

/// Does what the test wants in partition().
class Strategy final : public ParallelStrategy {
 public:
  explicit Strategy(std::function<void()> deed) : deed_(std::move(deed)) {}
  AxisRequest axis() const override { return {.name = "data"}; }
  void partition(Program& /*forward*/, AxisSet /*axes*/) const override { deed_(); }

 private:
  std::function<void()> deed_;
};

template <typename E>
std::string thrown_by(const std::function<void()>& deed) {
  const auto strategy = guarded(std::make_shared<Strategy>(deed), a_test);
  Program program;
  const std::string message = message_of<E>([&] { strategy->partition(program, 0); });
  EXPECT_EQ(PluginCall::current(), nullptr);
  return message;
}

TEST(GuardedParts, WhateverIsThrownIsReportedWithThePluginsName) {
  EXPECT_THAT(thrown_by<Error>([] { throw 42; }), AllOf(HasSubstr("strategy 'a-test' (/a/test.so)"),
                                                        HasSubstr("type int in partition()"), HasSubstr("no exception")));
  EXPECT_THAT(thrown_by<Error>([] { throw std::out_of_range("17"); }),
              AllOf(HasSubstr("strategy 'a-test'"), HasSubstr("std::out_of_range"), HasSubstr("17")));
  EXPECT_THAT(thrown_by<SystemError>([] { throw std::bad_alloc(); }), HasSubstr("strategy 'a-test'"));
}

TEST(GuardedParts, ErrorsKeepTheirTypeAndGetTheName) {
  EXPECT_EQ(thrown_by<UsageError>([] { throw UsageError("two heads"); }), "two heads (strategy 'a-test')");
  EXPECT_EQ(thrown_by<UsageError>([] { throw UsageError("strategy 'a-test' takes four"); }), "strategy 'a-test' takes four");
  EXPECT_EQ(thrown_by<DataError>([] { throw DataError("cut off"); }), "cut off (strategy 'a-test')");
  EXPECT_EQ(thrown_by<UnavailableError>([] { throw UnavailableError("none"); }), "none (strategy 'a-test')");
  EXPECT_EQ(thrown_by<ProgramError>([] { throw ProgramError("bug"); }), "bug (strategy 'a-test')");
  EXPECT_EQ(thrown_by<PeerError>([] { throw PeerError(3, "rank 3 died"); }), "rank 3 died");
}

class Null final : public Model, public Transport {
 public:
  std::vector<ModelPreset> presets() const override { return {}; }
  std::unique_ptr<Architecture> from_preset(std::string_view /*name*/) const override { return nullptr; }
  bool accepts(std::string_view /*architecture*/) const override { return false; }
  std::unique_ptr<Architecture> from_config(std::string_view /*json*/) const override { return nullptr; }
  std::string unavailable(std::string_view /*kind*/) const override { return {}; }
  std::unique_ptr<Communicator> connect(Job& /*job*/, const GroupRequest& /*group*/) override { return nullptr; }
};

TEST(GuardedParts, NullIsRefusedWithThePluginsName) {
  const auto model = guarded(std::shared_ptr<Model>(std::make_shared<Null>()), a_test);
  EXPECT_THAT(message_of<Error>([&] { model->from_preset("x"); }),
              HasSubstr("'a-test' (/a/test.so) returned null from from_preset()"));
  EXPECT_THAT(message_of<Error>([&] { model->from_config("{}"); }), HasSubstr("returned null from from_config()"));
  const auto transport = guarded(std::shared_ptr<Transport>(std::make_shared<Null>()), a_test);
  const auto errors = testing::run_ranks(testing::make_addresses(1), [&](JoinedJob& job) {
    EXPECT_THAT(message_of<Error>([&] { transport->connect(job, {.name = "data.0", .ranks = {0}}); }),
                HasSubstr("'a-test' (/a/test.so) returned null from connect()"));
    job.leave(std::chrono::seconds(5));
  });
  EXPECT_EQ(errors[0], nullptr);
}

/// One that says no unit of its own if it is given none.
class UnitOfLoss : public Loss {
 public:
  TensorId build(Builder& /*builder*/, const ModelHead& /*trained*/, std::span<const ModelHead> /*frozen*/,
                 double /*loss_scale*/) const override {
    return no_tensor;
  }
  std::string describe() const override { return ""; }
};
class UnitOfPairs final : public UnitOfLoss {
 public:
  explicit UnitOfPairs(std::string unit) : unit_(std::move(unit)) {}
  std::string unit() const override { return unit_; }

 private:
  std::string unit_;
};

TEST(GuardedParts, ALossSaysItsUnit) {
  EXPECT_EQ(guarded(std::shared_ptr<Loss>(std::make_shared<UnitOfLoss>()), a_test)->unit(), "nat/token");
  EXPECT_EQ(guarded(std::shared_ptr<Loss>(std::make_shared<UnitOfPairs>("nat/pair")), a_test)->unit(), "nat/pair");
  const auto none = guarded(std::shared_ptr<Loss>(std::make_shared<UnitOfPairs>("")), a_test);
  EXPECT_THAT(message_of<Error>([&] { none->unit(); }), HasSubstr("'a-test' (/a/test.so) returned no unit from unit()"));
}

class Data final : public Dataset {
 public:
  std::int64_t train = 1, eval = 0;
  std::int32_t token = 0;
  void open(const DatasetRequest& /*request*/) override {}
  std::int64_t train_sequences() const override { return train; }
  std::int64_t eval_sequences() const override { return eval; }
  void read_train(std::int64_t /*index*/, std::span<std::int32_t> tokens) const override { tokens.back() = token; }
  void read_eval(std::int64_t /*index*/, std::span<std::int32_t> tokens) const override { tokens.back() = token; }
  std::string describe() const override { return ""; }
};

TEST(GuardedParts, ADatasetMustHaveSequencesOfTokensOfTheVocabulary) {
  const auto data = std::make_shared<Data>();
  const auto dataset = guarded(std::shared_ptr<Dataset>(data), a_test);
  const DatasetRequest request{.sequence_length = 3, .vocabulary = 10};
  EXPECT_NO_THROW(dataset->open(request));
  data->train = -5;
  EXPECT_THAT(message_of<DataError>([&] { dataset->open(request); }), AllOf(HasSubstr("'a-test'"), HasSubstr("-5 sequences")));
  data->train = 1;
  data->eval = -1;
  EXPECT_THAT(message_of<DataError>([&] { dataset->open(request); }), AllOf(HasSubstr("'a-test'"), HasSubstr("-1 sequences")));
  std::vector<std::int32_t> tokens(4);
  for (const std::int32_t token : {10, -1}) {
    data->token = token;
    EXPECT_THAT(message_of<DataError>([&] { dataset->read_train(7, tokens); }),
                AllOf(HasSubstr("'a-test'"), HasSubstr("token " + std::to_string(token) + " in sequence 7")));
  }
}

TEST(GuardedParts, HandlersOfSignalsStayWhenAPluginReplacesThem) {
  const auto handler = [] {
    struct sigaction found {};
    sigaction(SIGTERM, nullptr, &found);
    return found.sa_handler;
  };
  const auto own = [](int) {};
  const auto before = signal(SIGTERM, own);
  {
    const Environment fault("CONSIST_TEST_FAULT", "load signals");
    PluginHost host({test::plugin_folder("faulty_data")});
    ::testing::internal::CaptureStderr();
    host.option_table("dataset", "faulty");  // loads it
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("dataset 'faulty'"), HasSubstr("took over the handling of SIGTERM;")));
  }
  EXPECT_EQ(handler(), +own);
  {
    const SignalGuard guard(a_test);
    signal(SIGTERM, SIG_IGN);
    EXPECT_EQ(handler(), SIG_IGN) << "the signal is set as the test thinks";
  }
  EXPECT_EQ(handler(), +own);
  signal(SIGTERM, before);
}

#if defined(__x86_64__)
TEST(GuardedParts, SubnormalNumbersStayOnWhenAPluginSwitchesThemOff) {
  const Environment fault("CONSIST_TEST_FAULT", "load flush");
  PluginHost host({test::plugin_folder("faulty_data")});
  host.option_table("dataset", "faulty");  // loads it
  volatile float smallest = std::numeric_limits<float>::min();
  EXPECT_GT(smallest / 2, 0.0F);
  {
    const FloatModeGuard guard(a_test);
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
    EXPECT_EQ(smallest / 2, 0.0F) << "the flag does what the test thinks";
  }
  EXPECT_GT(smallest / 2, 0.0F);
}
#endif

}  // namespace
}  // namespace consist
