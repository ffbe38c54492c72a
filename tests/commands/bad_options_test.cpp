// Errors of a command line are reported before anything starts: once, whatever the number of ranks, and with what would be
// right.
#include "tests/commands/bad_input.h"

namespace consist {
namespace {

using test::BadInput;

class BadOptions : public test::BadInputTest {
 protected:
  /// Each value in turn of an option of a training run.
  void expect_values_refused(const std::vector<std::pair<std::string, std::string>>& options, const std::string& says) const {
    std::vector<BadInput> inputs;
    for (const auto& [option, value] : options) {
      inputs.push_back({train + " --" + option + " " + value, 2, {option.substr(0, option.find('=')), says}});
    }
    expect_refused(inputs);
  }

  const std::string train = "train --model %G/qwen3-tied --from-scratch --device cpu --archive a.h5";
};

TEST_F(BadOptions, Pipelines) {
  const std::string pipeline = train + " --sequence 16 --strategy pipeline=2 --ranks 2 --accumulation 2";
  expect_refused({
      {pipeline + " --pipeline.rank-speeds 1:fast",
       2,
       {"--pipeline.rank-speeds", "'fast' is no number above 0", "0.97:1:1:1.02"}},
      {pipeline + " --pipeline.rank-speeds 1:1:1", 2, {"names 3 speeds", "has 2 ranks"}},
      {pipeline + " --pipeline.schedule interleaved --pipeline.chunks 0", 2, {"--pipeline.chunks is 0", "between 1 and 64"}},
      {pipeline + " --pipeline.schedule fast", 2, {"schedule", "zero-bubble-h2"}},
  });
}

TEST_F(BadOptions, UnknownCommandsAndOptions) {
  expect_refused({
      {"frobnicate", 2, {"there is no command 'frobnicate'", "--help"}},
      {"--frob", 2, {"there is no command '--frob'"}},
      {"train", 2, {"--model is missing"}},
      {"train --model", 2, {"--model needs a value"}},
      {train + " --stepz 3", 2, {"there is no option '--stepz'", "Did you mean 'steps'?"}},
      {train + " --lr 3e-4", 2, {"there is no option '--lr'", "Did you mean 'learning-rate'?"}},
      {train + " --strategy fsdp", 2, {"there is no strategy 'fsdp'", "Did you mean 'zero3-offload'?"}},
      {train + " --strategy zero3", 2, {"there is no strategy 'zero3'", "Did you mean 'zero3-offload'?"}},
      {train + " --strategy pipeline --pipeline.chunk 2", 2, {"has no option 'chunk'", "Did you mean 'chunks'?"}},
      {"train --model llama-tniy", 2, {"neither a folder nor a preset", "Did you mean 'llama-tiny'?"}},
      {"trian --model llama-tiny", 2, {"there is no command 'trian'", "Did you mean 'train'?"}},
      {train + " --step 3", 2, {"there is no option '--step'"}},  // no guessing
      {"train --mod llama-tiny", 2, {"there is no option '--mod'"}},
      {train + " -s 3", 2, {"-s"}},
      {train + " extra", 2, {"'extra' is neither an option nor the value of one"}},
      {train + " --steps 3 --steps 4", 2, {"--steps is given twice"}},
      {train + " --cpu.thread 1", 2, {"plugin 'cpu' has no option 'thread'", "threads"}},
      {train + " --nosuch.option 1", 2, {"there is no plugin 'nosuch'"}},
      {train + " --text.files x --dataset synthetic", 2, {"--text.files", "'text' is not part of this configuration"}},
      {train + " --cpu.threads 1 --cpu.threads 2", 2, {"--cpu.threads is given twice"}},
      {"explain --model llama-tiny --summry", 2, {"there is no option '--summry'"}},
      {"explain", 2, {"--model is missing"}},
      {"plugins --frob", 2, {"--frob"}},
      {"plugins nosuch", 2, {"there is no plugin 'nosuch'"}},
      {"launch", 2, {"launch"}},
      {"launch --nproc 2", 2, {"has no command"}},
      {"launch --nproc 0 -- train", 2, {"--nproc is '0'"}},
      {"launch --nproc 2 --frob -- train", 2, {"'--frob'"}},
      {"tokenize --output x.tokens", 2, {"no text is given"}},
      {"tokenize notes.txt", 2, {"--output is missing"}},
      {"tokenize --outpu x.tokens notes.txt", 2, {"--outpu"}},
      {"tokenize --output x.tokens --documents page notes.txt", 2, {"--documents is 'page'", "one of file, line"}},
  });
}

TEST_F(BadOptions, NumbersThatCannotBe) {
  for (const char* option : {"steps", "batch", "sequence", "accumulation", "ranks", "timeout", "checkpoint-keep"}) {
    const bool unbounded = std::string(option) == "steps";
    expect_values_refused({{option, "0"}, {option, "-1"}}, unbounded ? "it must be at least 1" : "it must be from 1 to ");
    expect_values_refused({{option, "x"}, {option, "1.5"}, {option, "99999999999999999999"}}, "it must be a whole number");
  }
  for (const char* option : {"evaluate-every", "evaluate-sequences", "checkpoint-every", "global-batch", "seed"}) {
    expect_values_refused({{option, "-1"}}, std::string(option) == "global-batch" ? "it must be from 0 to " : "it must be at least 0");
    expect_values_refused({{option, "x"}}, "it must be a whole number");
  }
  for (const char* option : {"learning-rate", "weight-decay", "clip"}) {
    expect_values_refused({{option, "-1"}, {option, "1e300"}}, "it must be from 0 to ");
    expect_values_refused({{option, "x"}, {option, "1,5"}, {option, "nan"}, {option, "inf"}}, "it must be a finite number");
  }
  expect_values_refused(
      {{"memory-limit", "-5"}, {"memory-limit", "3Q"}, {"memory-limit", "x"}, {"memory-limit", "99999999999999999999Gi"}},
      "it must be a number of bytes");
}

TEST_F(BadOptions, OfOptimizersAreOptionsOfTheirParts) {
  expect_refused({
      {train + " --beta1 0.9", 2, {"there is no option '--beta1'; optimizers have one:", "--adamw.beta1"}},
      {train + " --adamw.beta1 2", 2, {"--adamw.beta1 is 2; it must be from 0 to 0.999999"}},
      {train + " --adamw.epsilon -1", 2, {"--adamw.epsilon is -1; it must be from 0 to 1"}},
      {train + " --optimizer adam", 2, {"'adam'", "adamw"}},
      {train + " --lion.beta1 0.9", 2, {"--lion.beta1", "'lion' is not part of this configuration"}},
  });
}

TEST_F(BadOptions, SizesBeyondAnyMachine) {
  expect_refused({
      {train + " --batch 9223372036854775807", 2, {"--batch", "from 1 to"}},
      {train + " --batch 1000000000 --sequence 64", 2, {"--batch 1000000000 x --sequence 64", "tokens"}},
      {train + " --batch 10000000 --sequence 64 --dataset synthetic", 2, {"TiB of device memory", "The largest tensors"}},
      {train + " --global-batch 9223372036854775807", 2, {"--global-batch", "from 0 to"}},
      {train + " --accumulation 2000000000", 2, {"--accumulation", "from 1 to"}},
      {train + " --accumulation 60000 --sequence 16", 2, {"--accumulation 60000", "instructions", "larger --batch"}},
      {train + " --ranks 2000000000", 2, {"--ranks", "from 1 to"}},
      {train + " --ranks 5000 --sequence 16", 2, {"1 to 1024 ranks"}},
      {train + " --sequence 9999999", 2, {"--sequence is 9999999", "128 positions"}},
      {train + " --memory-limit 100k --sequence 16 --dataset synthetic",
       2,
       {"may be used", "The largest tensors", "--memory-limit"}},
      {train + " --memory-limit 100k --sequence 16 --dataset synthetic --ranks 3", 2, {"may be used", "The largest tensors"}},
      {"train --model llama-3.1-70b --dataset synthetic --device cpu",
       2,
       {"TiB of device memory", "The largest tensors", "lm_head.weight"}},
  });
}

TEST_F(BadOptions, PartsThatDoNotExistOrFit) {
  write_whole(folder_ / "no.so", "not a plugin");
  expect_refused({
      {"train --model llama-9b", 2, {"'llama-9b' is neither a folder nor a preset", "llama-tiny"}},
      {train + " --precision fp3", 2, {"there is no precision 'fp3'", "bf16"}},
      {train + " --strategy zero9", 2, {"there is no strategy 'zero9'", "ddp"}},
      {train + " --strategy ddp=0", 2, {"'0' is no number of ranks"}},
      {train + " --strategy ddp=2x", 2, {"'' is no number of ranks"}},
      {train + " --strategy ddp=*x*", 2, {"'*' is no number of ranks"}},
      {train + " --strategy tp-sp=2x2 --ranks 4", 2, {"strategy 'tp-sp' works on 1 axis, but is given 2"}},
      {train + " --strategy ddp=2", 2, {"multiply to 2", "1 rank"}},
      {train + " --strategy ddp=2 --ranks 3 --sequence 16", 2, {"multiply to 2", "3 ranks"}},
      {train + " --strategy ddp+ddp", 2, {"remaining ranks"}},
      {train + " --strategy ''", 2, {"has an empty part"}},
      {train + " --transport avian", 2, {"there is no transport 'avian'", "socket"}},
      {train + " --transport zero2=socket", 2, {"'zero2', which is not in --strategy"}},
      {"train --model llama-tiny --device abacus", 2, {"there is no device 'abacus'", "cpu"}},
      {train + " --sequence 16 --dataset library", 2, {"there is no dataset 'library'", "synthetic"}},
      {train + " --schedule cubic", 2, {"there is no schedule 'cubic'", "constant", "wsd"}},
      {train + " --plugin /nonexistent", 2, {"/nonexistent"}},
      {train + " --plugin no.so", 1, {"no.so", "ELF"}},
      {train + " --cpu.threads -1 --sequence 16", 2, {"--cpu.threads"}},
      {train + " --cpu.threads x --sequence 16", 2, {"--cpu.threads is 'x'"}},
      {train + " --cpu.level z80 --sequence 16", 2, {"--cpu.level is 'z80'", "x86-64-v3"}},
      {train + " --ddp.bucket-size -1 --sequence 16", 2, {"--ddp.bucket-size is '-1'"}},
      {train + " --synthetic.successors 0 --dataset synthetic --sequence 16", 2, {"--synthetic.successors"}},
  });
}

TEST_F(BadOptions, RecomputationOfWhatIsNotThere) {
  const std::string small = train + " --dataset synthetic --sequence 16";
  expect_refused({
      {small + " --recompute some", 2, {"no layer has the op 'some'", "none, full", "swiglu"}},
      {small + " --recompute full,swiglu", 2, {"--recompute is 'full,swiglu'", "none, full or a list of ops"}},
      {small + " --recompute full --recompute-layers 1-2", 2, {"--recompute-layers 1-2", "layers 0 to 1"}},
      {small + " --recompute full --recompute-layers 1-x", 2, {"'1-x' is no range of layers"}},
      {small + " --recompute-layers 0-1", 2, {"--recompute-layers is given", "--recompute is none"}},
  });
}

TEST_F(BadOptions, ActivationsThatCannotGoToTheHost) {
  const std::string small = train + " --dataset synthetic --sequence 16";
  expect_refused({
      {small + " --offload-activations some", 2, {"--offload-activations is 'some'", "none, all, or layers such as 0-15"}},
      {small + " --offload-activations 1-0", 2, {"'1-0' ends before it begins"}},
      {small + " --offload-activations 0-2", 2, {"--offload-activations 0-2", "layers 0 to 1"}},
      {small + " --offload-activations 0-2 --strategy pipeline=2 --ranks 2 --accumulation 2", 2, {"--offload-activations 0-2", "layers 0 to 1"}},
      {small + " --offload-activations 1", 2, {"nothing would be moved", "The last layers always stay", "leave the option out"}},
      {small + " --offload-activations 0 --host-memory-limit 1Ki", 2, {"pins", "--host-memory-limit", "--offload-activations"}},
  });
}

TEST_F(BadOptions, BatchesThatDoNotFit) {
  const std::string small = train + " --dataset synthetic --sequence 16";
  expect_refused({
      {small + " --global-batch 3 --ranks 4", 2, {"--global-batch 3", "leaves a rest", "multiple of 4"}},
      {small + " --global-batch 8 --batch 3", 2, {"--global-batch 8", "leaves a rest"}},
      {small + " --evaluate-every 1 --synthetic.eval-sequences 0", 2, {"no evaluation part"}},
      {small + " --resume", 2, {"--checkpoint FOLDER"}},
      {small + " --checkpoint-every 3", 2, {"--checkpoint FOLDER"}},
  });
}

TEST_F(BadOptions, AreSaidOnceByAllRanks) {
  write_whole(folder_ / "notes.txt", "not a folder");
  const std::string three = "--dataset synthetic --sequence 16 --ranks 3";
  expect_refused({
      {train + " --precision fp3 --ranks 3", 2, {"'fp3'"}},
      {train + " --dataset tokens --sequence 16 --ranks 3", 2, {"--tokens.files is missing"}},
      {train + " --dataset text --text.files nosuch.txt --sequence 16 --ranks 3", 2, {"nosuch.txt"}},
      {"train --model %G/qwen3-tied --archive . --device cpu " + three, 2, {"--archive . is a folder"}},
      {"train --model %G/qwen3-tied --export notes.txt/x --device cpu " + three, 1, {"notes.txt/x"}},
      {"launch --nproc 3 -- frobnicate", 2, {"'frobnicate'"}},
      {"launch --nproc 3 -- train --model llama-9b", 2, {"'llama-9b'"}},
      {"launch --nproc 3 -- train --model llama-tiny --ranks 2", 2, {"--ranks is 2", "3 ranks"}},
  });
}

TEST_F(BadOptions, AComparisonOfNothingThatRunsIsAFailure) {
  const test::ChildResult result = test::run_child(
      {CONSIST_BINARY_DIR "/bin/consist", "compare", "--model", "llama-9b,llama-10b", "--output", folder_ / "out"});
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_THAT(result.output, ::testing::HasSubstr("'llama-10b' is neither a folder nor a preset"));
}

TEST_F(BadOptions, ALargeModelIsExplainedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const test::ChildResult result =
      test::run_child({CONSIST_BINARY_DIR "/bin/consist", "explain", "--model", "llama-3.1-70b", "--device", "cpu"});
  EXPECT_EQ(result.status, 0);
  EXPECT_GT(result.output.size(), 500'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
}  // namespace consist
