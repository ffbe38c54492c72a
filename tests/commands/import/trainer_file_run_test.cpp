// Runs and comparisons of files of other trainers, as users start them.
#include <algorithm>

#include "tests/child_process.h"
#include "tests/commands/import/trainer_file_case.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainerFileRun : public test::TrainerFileTest {
 protected:
  test::ChildResult run(const std::string& file, const std::string& command, std::vector<std::string> words) {
    const std::string path = folder_ / "mine";
    write_whole(path, file);
    words.insert(words.begin(), {CONSIST_BINARY_DIR "/bin/consist", command, "--from=" + path});
    return test::run_child(words);
  }
};

const std::string titan =
    "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nlocal_batch_size = 1\nseq_len = 16\nsteps = "
    "2\n[parallelism]\n"
    "data_parallel_shard_degree = 2\n[activation_checkpoint]\nmode = \"full\"\n[lr_scheduler]\nwarmup_steps = 1\n";

TEST_F(TrainerFileRun, Trains) {
  const std::vector<std::string> words{"--device=cpu", "--dataset=synthetic"};
  test::ChildResult result = run(titan, "train", words);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("[\"LlamaForCausalLM\"] of 6 layers of 256"), HasSubstr("zero3-offload=2 on 2 ranks")));
  EXPECT_THAT(result.output, HasSubstr("of torchtitan: "));
  result =
      run("torchrun --nproc-per-node=2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 16 "
          "--swiglu "
          "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear --attention-dropout 0 --hidden-dropout 0 "
          "--vocab-size 128 "
          "--micro-batch-size 1 --global-batch-size 4 --train-iters 2 --lr 1e-3 --lr-decay-style cosine --bf16 "
          "--use-distributed-optimizer\n",
          "train", words);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("zero2 on 2 ranks"));
  result =
      run("distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\nfsdp_config: {fsdp_reshard_after_forward: true}\n",
          "train", {"--device=cpu", "--dataset=synthetic", "--model=llama-tiny", "--sequence=16", "--batch=1", "--steps=2"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("zero3-offload on 2 ranks"));
}

TEST_F(TrainerFileRun, AFileIsComparedWithOtherStrategies) {
  const test::ChildResult result =
      run(titan, "compare", {"--predict", "--machine=h100", "--strategy=from,zero2", "--from-set=training.seq_len=16,32"});
  EXPECT_EQ(result.status, 0) << result.output;
  for (const char* row : {"   from      16 ", "zero2     32 ", "strategy zero2 over from: "})
    EXPECT_THAT(result.output, HasSubstr(row));
  EXPECT_EQ(result.output.find("        0 B     0%"), std::string::npos) << "zero2 has the file's two ranks, which send";
}

TEST_F(TrainerFileRun, TuneSearchesAroundAFile) {
  const test::ChildResult result =
      run(titan, "tune", {"--machine=h100", "--global-batch=2", "--measure=0", "--configurations=30", "--rows=3"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("--recompute none")) << "the file has full recomputation, which the command must undo";
}

/// Layers that a file recomputes are no layers of what the search tries instead: torchtitan's default is every second.
TEST_F(TrainerFileRun, TuneSearchesAroundRecomputedLayers) {
  const std::string some =
      "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nlocal_batch_size = 1\nseq_len = 16\n"
      "[parallelism]\ndata_parallel_shard_degree = 2\n";
  const test::ChildResult result =
      run(some, "tune", {"--machine=h100", "--global-batch=2", "--measure=0", "--configurations=30", "--rows=3"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("--recompute none"));
  const test::ChildResult advised = run(some, "advise", {"--machine=h100"});
  EXPECT_EQ(advised.status, 0) << advised.output;
}

TEST_F(TrainerFileRun, AFileIsSummarizedInAFewLines) {
  const std::string file = titan + "[job]\ndescription = \"mine\"\n[metrics]\nlog_freq = 1\n[compile]\nenable = true\n";
  const std::vector<std::string> words{"--machine=h100", "--steps=3"};
  const auto lines = [](const std::string& output) { return std::count(output.begin(), output.end(), '\n'); };
  std::vector<std::string> each = words;
  each.emplace_back("--from-notes");
  const std::string brief = run(file, "predict", words).output, whole = run(file, "predict", each).output;
  EXPECT_THAT(brief, HasSubstr("of torchtitan: 7 keys are taken over, "));
  EXPECT_THAT(brief, HasSubstr("--from-notes says what became of each key"));
  EXPECT_THAT(brief, HasSubstr("torchtitan keys without effect here: compile, job, metrics\n"));
  EXPECT_THAT(brief, HasSubstr("torchtitan keys behind what the command line gives: training.steps\n"));
  EXPECT_THAT(brief, HasSubstr("here norms and biases do not decay")) << "what is done otherwise";
  EXPECT_THAT(brief, ::testing::Not(HasSubstr("training.seq_len")));
  for (const char* key : {"torchtitan training.seq_len 16: --sequence 16", "torchtitan job {",
                          "keys that are absent have torchtitan's defaults", "here norms and biases do not decay"})
    EXPECT_THAT(whole, HasSubstr(key));
  EXPECT_GT(lines(whole), lines(brief) + 8);
  EXPECT_THAT(run(file, "train", {"--print-config"}).output, HasSubstr("torchtitan training.seq_len 16"))
      << "where the mapping is the answer";
  const test::ChildResult none =
      test::run_child({CONSIST_BINARY_DIR "/bin/consist", "predict", "--model=llama-tiny", "--from-notes"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.output, HasSubstr("no --from FILE"));
}

TEST_F(TrainerFileRun, ItsConfigurationIsAFileOfItsOwn) {
  const test::ChildResult printed = run(titan, "train", {"--print-config"});
  ASSERT_EQ(printed.status, 0) << printed.output;
  const std::size_t begin = printed.output.find("model = ");
  ASSERT_NE(begin, std::string::npos) << printed.output;
  write_whole(folder_ / "own.toml", printed.output.substr(begin));
  const RunConfig own = make_config(parse_run({"--config=" + (folder_ / "own.toml")}), host_);
  EXPECT_EQ(to_toml(own, host_), to_toml(config_of(titan), host_));
}

}  // namespace
}  // namespace consist
