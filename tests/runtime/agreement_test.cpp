// Ranks that would not train the same thing are refused before the first step, on every transport; so are transports that do not
// do what they say.
#include "core/connect/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "consist/error.h"
#include "core/program/verifier.h"
#include "tests/child_process.h"
#include "tests/runtime/in_process_run.h"
#include "tests/runtime/short_steps.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::make_addresses;
using ::testing::Not;
using testing::run_ranks;
using testing::text_of;

std::vector<std::string> words_of_transports() {
#ifdef CONSIST_WITH_LIBFABRIC
  return {"socket", "efa"};
#else
  return {"socket"};
#endif
}

class Agreement : public ::testing::TestWithParam<std::string> {
 protected:
  static test::ChildResult train(const std::string& mistake, const std::string& archive) {
    std::vector<std::string> words{"--plugin=" TEST_PLUGINS "/strategy-disagreeing.so", "--strategy=disagreeing",
                                   "--disagreeing.mistake=" + mistake, "--ranks=2", "--transport=" + GetParam()};
    if (GetParam() == "efa") words.emplace_back("--efa.provider=tcp");
    return test::run_child(test::short_steps(archive, 2, words));
  }
  TemporaryFolder folder_;
};

TEST_P(Agreement, RanksWithOtherCollectivesAreRefusedBeforeTheFirstStep) {
  for (const char* mistake : {"order", "number", "size"}) {
    SCOPED_TRACE(mistake);
    const test::ChildResult result = train(mistake, folder_ / "run.h5");
    EXPECT_NE(result.status, 0);
    EXPECT_LT(result.status, 128) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("programs (collectives of the step) do not agree"), HasSubstr("rank 0"),
                                     HasSubstr("rank 1"), HasSubstr("= all_reduce("), Not(HasSubstr("step 1/"))));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run.h5"));
  }
}

TEST_P(Agreement, RanksWithTheSameCollectivesTrain) {
  const test::ChildResult result = train("none", folder_ / "run.h5");
  EXPECT_EQ(result.status, 0) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Transports, Agreement, ::testing::ValuesIn(words_of_transports()),
                         [](const auto& info) { return info.param; });

RunConfig pipeline_config() {
  RunConfig config;
  config.model = std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/qwen3-tied";
  config.strategies = {{"pipeline", 2}, {"ddp", 0}};
  config.device = "cpu";
  config.dataset = "synthetic";
  config.ranks = 4;
  config.accumulation = 3;
  config.batch = 1;
  config.sequence = 32;
  config.steps = 1;
  return config;
}

/// Each rank's error, or null, from comparing the programs of `config` after `change` may have modified any of them.
std::vector<std::exception_ptr> agree(const RunConfig& config, const std::function<void(int rank, Program&)>& change) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const Parts parts = make_parts(config, host);
  const Layout layout = lay_out(parts.uses, config.ranks);
  std::vector<Program> programs;
  for (int rank = 0; rank < config.ranks; ++rank) {
    programs.push_back(compile_step(parts.compile_request(config), layout, rank));
    change(rank, programs.back());
  }
  return run_ranks(make_addresses(config.ranks), [&](JoinedJob& job) {
    const Program* const own = &programs[static_cast<std::size_t>(job.rank())];
    agree_on_programs(job, "collectives", {&own, 1});
    job.leave(std::chrono::seconds(20));
  });
}

TEST(AgreementOfStages, StagesWhoseMessagesMeetAreAccepted) {
  for (const auto& error : agree(pipeline_config(), [](int, Program&) {})) EXPECT_EQ(text_of(error), "");
}

TEST(AgreementOfStages, AMessageThatNobodySendsIsNamedOnAllRanks) {
  const auto errors = agree(pipeline_config(), [](int rank, Program& program) {
    if (rank != 1) return;
    const auto sends = [](const Instruction& i) { return i.op->name() == "send"; };
    program.instructions.erase(std::find_if(program.instructions.begin(), program.instructions.end(), sends));
  });
  for (const auto& error : errors) EXPECT_THAT(text_of(error), AllOf(HasSubstr("do not agree"), HasSubstr("rank 1")));
}

TEST(AgreementOfStages, OneOfManyRanksOfAStageIsNoticed) {
  const auto errors = agree(pipeline_config(), [](int rank, Program& program) {
    if (rank != 3) return;
    const auto reduces = [](const Instruction& i) { return i.op->name() == "all_reduce" && i.queue.axes() == 1; };
    const auto first = std::find_if(program.instructions.begin(), program.instructions.end(), reduces);
    ASSERT_NE(first, program.instructions.end());
    program.instructions.erase(first);
  });
  for (const auto& error : errors) EXPECT_THAT(text_of(error), AllOf(HasSubstr("do not agree"), HasSubstr("rank 3")));
}

TEST(AgreementOfOptions, ARankWithAnotherLearningRateIsNamed) {
  RunConfig config = pipeline_config();
  const auto errors = run_ranks(make_addresses(3), [&](JoinedJob& job) {
    RunConfig mine = config;
    mine.ranks = 3;
    mine.memory_limit = job.rank();  // a host's own
    if (job.rank() == 2) mine.learning_rate = 0.125;
    agree_on_options(job, mine);
    job.leave(std::chrono::seconds(20));
  });
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), HasSubstr("rank 2 was started with learning_rate 0.125, rank 0 with "));
}

/// A transport of members in one process that errs as it is told.
enum class TransportFault { none, never_sums, no_path, no_communicator, loses_messages };

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> good, TransportFault fault) : good_(std::move(good)), fault_(fault) {}
  int rank() const noexcept override { return good_->rank(); }
  int size() const noexcept override { return good_->size(); }
  void all_reduce(void* data, std::int64_t count, DType dtype, NativeQueue queue) override {
    if (fault_ != TransportFault::never_sums) good_->all_reduce(data, count, dtype, queue);
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    good_->reduce_scatter(input, output, count, dtype, queue);
  }
  void all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride, std::int64_t count,
                  DType dtype, NativeQueue queue) override {
    good_->all_to_all(input, input_stride, output, output_stride, count, dtype, queue);
  }
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    good_->all_gather(input, output, count, dtype, queue);
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root, NativeQueue queue) override {
    good_->broadcast(data, count, dtype, root, queue);
  }
  void send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue queue) override {
    good_->send(data, count, dtype, to, queue);
  }
  void receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue queue) override {
    good_->receive(data, count, dtype, from, queue);
    if (fault_ == TransportFault::loses_messages) std::memset(data, 0, static_cast<std::size_t>(count) * size_of(dtype));
  }
  std::string verified_path() const override { return fault_ == TransportFault::no_path ? "" : good_->verified_path(); }
  std::int64_t bytes_sent() const noexcept override { return good_->bytes_sent(); }

 private:
  std::unique_ptr<Communicator> good_;
  TransportFault fault_;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::shared_ptr<Transport> good, TransportFault fault) : good_(std::move(good)), fault_(fault) {}
  std::string unavailable(std::string_view /*device_kind*/) const override { return {}; }
  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override {
    if (fault_ == TransportFault::no_communicator) return nullptr;
    return std::make_unique<FaultyCommunicator>(good_->connect(job, group), fault_);
  }

 private:
  std::shared_ptr<Transport> good_;
  TransportFault fault_;
};

/// The errors that the ranks of a pipeline of two stages throw when they connect over a transport with that fault.
std::vector<std::exception_ptr> connect_over(TransportFault fault) {
  RunConfig config = pipeline_config();
  config.ranks = 2;
  config.strategies = {{"pipeline", 2}};
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  std::vector<Parts> parts;
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<std::shared_ptr<Transport>> transports;
  for (int rank = 0; rank < config.ranks; ++rank) {
    parts.push_back(make_parts(config, host));
    devices.push_back(make_device(config, host).device);
    transports.push_back(std::make_shared<FaultyTransport>(host.make<Transport>("transport", "socket", {}), fault));
  }
  const Layout layout = lay_out(parts[0].uses, config.ranks);
  return run_ranks(make_addresses(config.ranks), [&](JoinedJob& job) {
    const auto rank = static_cast<std::size_t>(job.rank());
    devices[rank]->open(job.rank(), job.size());
    CompileRequest request = parts[rank].compile_request(config);
    request.transports = {"homemade"};
    const Program step = compile_step(request, layout, job.rank());
    const Program* const own = &step;
    {
      const Communicators communicators(layout.mesh, job, *devices[rank],
                                        [&](const std::string& /*name*/) { return transports[rank]; }, {&own, 1});
      EXPECT_EQ(communicators.bytes_sent(0), 0) << "the trial counts as traffic";
    }
    job.leave(std::chrono::seconds(20));
  });
}

std::string texts_of(const std::vector<std::exception_ptr>& errors) {
  std::string all;
  for (const auto& error : errors) all += text_of(error) + "\n";
  return all;
}

TEST(CommunicatorProof, AGoodTransportIsTaken) {
  EXPECT_EQ(texts_of(connect_over(TransportFault::none)), "\n\n");
}

TEST(CommunicatorProof, ATransportThatNeverSumsIsRefusedByName) {
  EXPECT_THAT(
      texts_of(connect_over(TransportFault::never_sums)),
      AllOf(HasSubstr("transport 'homemade' in group"), HasSubstr("cannot be used: all_reduce of values that are known gave")));
}

TEST(CommunicatorProof, ATransportThatLosesMessagesIsRefusedByName) {
  EXPECT_THAT(
      texts_of(connect_over(TransportFault::loses_messages)),
      AllOf(HasSubstr("transport 'homemade' in group"), HasSubstr("cannot be used: a message of values that are known gave")));
}

TEST(CommunicatorProof, ATransportThatProvesNoPathIsRefusedByName) {
  EXPECT_THAT(texts_of(connect_over(TransportFault::no_path)),
              AllOf(HasSubstr("transport 'homemade' in group"), HasSubstr("does not say by which path")));
}

TEST(CommunicatorProof, ATransportThatMakesNoCommunicatorIsRefusedByName) {
  EXPECT_THAT(texts_of(connect_over(TransportFault::no_communicator)),
              AllOf(HasSubstr("transport 'homemade' in group"), HasSubstr("made no communicator")));
}

}  // namespace
}  // namespace consist
