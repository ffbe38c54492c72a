// Checkpoints come back bit for bit; damaged ones are refused by name, and the one before is used.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "consist/error.h"
#include "core/checkpoint/save_checkpoint.h"
#include "tests/checkpoint/saved_run.h"
#include "tests/job/in_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

void flip_bit(const std::string& path, std::size_t byte) {
  std::string bytes = read_whole(path);
  bytes.at(byte) = static_cast<char>(bytes[byte] ^ 0x10);
  write_whole(path, bytes);
}

TEST(CheckpointState, RoundTrip) {
  CheckpointState state = state_at(40);
  state.ranks = 3;
  state.files = {{"rank-00000.safetensors", 123, sha256_of("a")}, {"rank-00002.safetensors", 1LL << 40, sha256_of("b"), true}};
  EXPECT_EQ(parse_checkpoint_state(to_text(state), "state.json"), state);
  EXPECT_EQ(parse_checkpoint_file(to_text(state.files[1])), state.files[1]);
  state.room = 1.5 * 1.5 * 1.1;
  EXPECT_EQ(parse_checkpoint_state(to_text(state), "state.json"), state);
}

TEST(CheckpointState, EveryChangedByteIsNoticed) {
  CheckpointState state = state_at(40);
  state.files = {{"rank-00000.safetensors", 123, sha256_of("a")}};
  const std::string text = to_text(state);
  for (std::size_t byte = 0; byte < text.size(); ++byte) {
    std::string changed = text;
    changed[byte] = static_cast<char>(changed[byte] ^ 1);
    try {
      EXPECT_EQ(parse_checkpoint_state(changed, "state.json"), state) << changed;  // white space may change
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("state.json"));
    }
    if (byte + 1 == text.size()) break;  // without its line's end it still is the same
    EXPECT_THROW(parse_checkpoint_state(text.substr(0, byte), "state.json"), DataError);
  }
}

TEST(CheckpointState, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& text, const std::string& message) {
    EXPECT_THAT([&] { parse_checkpoint_state(text, "a/state.json"); },
                ThrowsMessage<DataError>(AllOf(HasSubstr("a/state.json"), HasSubstr(message))))
        << text;
  };
  const auto with_state = [](const std::string& state) {
    return R"({"format":"consist checkpoint","version":1,"state":)" + state + R"(,"sha256":")" + sha256_of(state) + "\"}";
  };
  refused("[]", "no object");
  refused("{}", "no format");
  refused(R"({"format":"zip"})", "not marked");
  refused(R"({"format":"consist checkpoint","version":4})", "version 4, this program reads versions up to 3");
  refused(R"({"format":"consist checkpoint","version":1,"state":{},"sha256":"0"})", "checksum");
  refused(with_state("{}"), "no step");
  refused(with_state(R"({"step":-1})"), "illegal step");
  refused(with_state(R"({"step":"1"})"), "illegal step");
  refused(std::string(100'000, '['), "nested deeper");
  const std::string head = R"({"config":"","data_position":0,"files":)";
  const std::string tail = R"(,"layout":"","ranks":1,"seed":0,"step":1})";
  refused(with_state(head + "3" + tail), "no list of files");
  const auto entry = [](const std::string& name) {
    return R"({"bytes":1,"name":")" + name + R"(","sha256":")" + sha256_of("") + "\"}";
  };
  refused(with_state(head + "[" + entry("../x") + "]" + tail), "plain file name");
  refused(with_state(head + "[" + entry("") + "]" + tail), "plain file name");
  refused(with_state(head + "[" + entry("x") + "," + entry("x") + "]" + tail), "twice");
  refused(with_state(head + R"([{"bytes":1,"name":"x","sha256":"00"}])" + tail), "illegal sha256");
  const std::string hashed = entry("x").insert(entry("x").size() - 1, R"(,"sha256_blocks":1024)");
  refused(with_state(head + "[" + hashed + "]" + tail), "illegal sha256_blocks");
  EXPECT_EQ(parse_checkpoint_state(with_state(head + "[" + entry("x") + "]" + tail), "a/state.json").files.size(), 1U);
}

TEST(Checkpoint, RoundTrip) {
  const TemporaryFolder folder;
  const std::string run = folder / "deep/run";
  EXPECT_FALSE(latest_checkpoint(run).has_value());
  CheckpointWriter writer(run, 2);
  EXPECT_FALSE(latest_checkpoint(run).has_value());
  save(writer, 40);
  std::vector<std::string> refused;
  const std::optional<Checkpoint> latest = latest_checkpoint(run, &refused);
  ASSERT_TRUE(latest.has_value());
  EXPECT_EQ(latest->path(), run + "/step-00000040");
  EXPECT_THAT(refused, IsEmpty());
  expect_sound(*latest, 40);
}

TEST(Checkpoint, TheNewestAreKept) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2);
  for (const std::int64_t step : {5, 10, 15, 123'456'789}) save(writer, step);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(123'456'789, 15));
  EXPECT_THROW(CheckpointWriter(folder / "other", 0), UsageError);
}

TEST(Checkpoint, OneOfTheSameStepIsReplaced) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2);
  save(writer, 10);
  save(writer, 20);
  flip_bit(folder / "step-00000020/rank-00000.safetensors", 3000);
  save(writer, 20);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(20, 10));
  expect_sound(*latest_checkpoint(folder.path()), 20);
  // A run that went back to step 10 does not remove it for the sake of later ones that were refused.
  save(writer, 30);
  flip_bit(folder / "step-00000030/rank-00000.safetensors", 3000);
  save(writer, 11);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(30, 20, 11));
}

TEST(Checkpoint, LargeFilesAreHashedInBlocksAndThoseOfEarlierVersionsInWhole) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 3);
  CheckpointState state = state_at(10);
  const std::string partial = writer.begin(10);
  state.files = {write_checkpoint_file(partial, checkpoint_file_name(0), std::vector{ramp_source("x", 10'000'000)}, {}, 3)};
  EXPECT_TRUE(state.files[0].hashed_in_blocks);
  const std::string file = partial + "/" + state.files[0].name;
  state.version = 2;
  state.files[0] = {state.files[0].name, state.files[0].bytes, sha256_of(InputFile(file))};
  writer.commit(state);
  EXPECT_EQ(latest_checkpoint(folder.path()).value().state().version, 2);

  state = state_at(20);
  state.files = {
      write_checkpoint_file(writer.begin(20), checkpoint_file_name(0), std::vector{ramp_source("x", 10'000'000)}, {}, 3)};
  writer.commit(state);
  EXPECT_EQ(latest_checkpoint(folder.path()).value().state().step, 20);
  flip_bit(folder / "step-00000020/rank-00000.safetensors", 39'000'000);
  EXPECT_EQ(latest_checkpoint(folder.path()).value().state().step, 10);
}

TEST(Checkpoint, EveryDamagedFileIsRefusedAndTheOneBeforeIsUsed) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 3);
  for (const std::int64_t step : {10, 20, 30}) save(writer, step);
  const std::string newest = folder / "step-00000030";
  for (const std::string name : {"/rank-00000.safetensors", "/state.json"}) {
    const std::string path = newest + name;
    const std::string whole = read_whole(path);
    const auto falls_back = [&](const char* reason) {
      SCOPED_TRACE(path + ": " + reason);
      std::vector<std::string> refused;
      const std::optional<Checkpoint> latest = latest_checkpoint(folder.path(), &refused);
      ASSERT_TRUE(latest.has_value());
      expect_sound(*latest, 20);
      EXPECT_THAT(refused, ElementsAre(AllOf(HasSubstr("step 30"), HasSubstr(path), HasSubstr(reason))));
    };
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
      if (name == "/state.json" && bytes + 1 == whole.size()) continue;  // only the line's end is lost
      write_whole(path, whole.substr(0, bytes));
      falls_back("cut off");
    }
    write_whole(path, whole);
    flip_bit(path, whole.size() / 2);
    falls_back("corrupt");
    write_whole(path, whole + "x");
    falls_back("corrupt");
    std::filesystem::remove(path);
    falls_back("No such file");
    write_whole(path, whole);
  }
  expect_sound(*latest_checkpoint(folder.path()), 30);
}

TEST(Checkpoint, NoneThatIsSoundIsAnError) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2);
  for (const std::int64_t step : {10, 20}) {
    save(writer, step);
    std::filesystem::remove(checkpoint_path(folder.path(), step) + "/rank-00000.safetensors");
  }
  EXPECT_THAT([&] { latest_checkpoint(folder.path()); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr("none of the 2 checkpoints"), HasSubstr("step-00000020"), HasSubstr("No such file"))));
}

TEST(Checkpoint, ACheckpointUnderAnothersNameIsRefused) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2);
  save(writer, 10);
  std::filesystem::rename(folder / "step-00000010", folder / "step-00000011");
  EXPECT_THAT([&] { latest_checkpoint(folder.path()); }, ThrowsMessage<DataError>(HasSubstr("state is that of step 10")));
}

TEST(Checkpoint, WhatIsBegunAndNotCommittedIsRemoved) {
  const TemporaryFolder folder;
  {
    CheckpointWriter writer(folder.path(), 2);
    save(writer, 10);
    write_checkpoint_file(writer.begin(20), checkpoint_file_name(0), tensors_at(20));
    EXPECT_THROW(writer.begin(30), ProgramError);
    EXPECT_THROW(writer.commit(state_at(30)), ProgramError);
    EXPECT_THAT(steps_in(folder.path()), ElementsAre(10));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000020.partial"));
  std::filesystem::create_directories(folder / "step-00000030.partial/x");
  const CheckpointWriter next(folder.path(), 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000030.partial"));
}

TEST(Checkpoint, AFileThatRankZeroDoesNotSee) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2);
  writer.begin(10);
  CheckpointState state = state_at(10);
  state.files = {{"rank-00001.safetensors", 100, sha256_of("")}};
  EXPECT_THAT([&] { writer.commit(state); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("rank-00001.safetensors"), HasSubstr("all ranks share"))));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000010.partial"));
  save(writer, 10);
}

TEST(Checkpoint, OneRunPerFolder) {
  const TemporaryFolder folder;
  {
    const CheckpointWriter writer(folder.path(), 2);
    EXPECT_THAT([&] { CheckpointWriter(folder.path(), 2); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr("another run"), HasSubstr(folder.path().string()))));
  }
  EXPECT_NO_THROW(CheckpointWriter(folder.path(), 2));
}

TEST(Checkpoint, AFolderThatCannotBeMade) {
  EXPECT_THAT([] { CheckpointWriter("/proc/checkpoints", 2); }, ThrowsMessage<SystemError>(HasSubstr("/proc/checkpoints")));
  const TemporaryFolder folder;
  write_whole(folder / "file", "");
  EXPECT_THAT([&] { CheckpointWriter(folder / "file", 2); }, ThrowsMessage<SystemError>(HasSubstr(folder / "file")));
}

TEST(SaveCheckpoint, EveryRankWritesItsTensors) {
  const TemporaryFolder folder;
  const auto errors = testing::run_ranks(testing::make_addresses(3), [&](JoinedJob& job) {
    std::optional<CheckpointWriter> writer;
    if (job.rank() == 0) writer.emplace(folder.path(), 2);
    CheckpointState state = state_at(10);
    state.ranks = 3;
    std::vector<TensorSource> mine;
    if (job.rank() != 1) mine = {ramp_source("x", 100, static_cast<float>(job.rank() + 1))};
    const std::int64_t bytes = save_checkpoint(job, writer ? &*writer : nullptr, state, mine);
    EXPECT_EQ(bytes > 800, job.rank() == 0);
    EXPECT_THAT(steps_in(folder.path()), ElementsAre(10)) << "complete for every rank";
    const std::optional<Checkpoint> found = find_checkpoint(job, folder.path());
    EXPECT_EQ(found.value().state().files.size(), 2U);
    if (job.rank() != 1) {
      float value = 0;
      found->open(checkpoint_file_name(job.rank())).read_f32("x", 7, std::span(&value, 1));
      EXPECT_EQ(value, 7.0F * static_cast<float>(job.rank() + 1));
    }
    job.leave(std::chrono::seconds(20));
  });
  for (const auto& error : errors) EXPECT_EQ(testing::text_of(error), "");
}

// Rank 0 removes the unfinished folder while rank 2 still writes in it.
TEST(SaveCheckpoint, ARankWhoseFolderIsTakenAwayNamesTheRankThatFailedAndNotTheDisk) {
  const TemporaryFolder folder;
  const auto errors = testing::run_ranks(testing::make_addresses(3), [&](JoinedJob& job) {
    std::optional<CheckpointWriter> writer;
    if (job.rank() == 0) writer.emplace(folder.path(), 2);
    const TensorSource source{"x", DType::f32, Shape{1}, [&](void*, std::int64_t, std::int64_t) {
                                if (job.rank() == 1) throw SystemError("the device is gone");
                                const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                                while (job.rank() == 2 && std::filesystem::exists(folder / "step-00000010.partial") &&
                                       std::chrono::steady_clock::now() < give_up)
                                  std::this_thread::sleep_for(std::chrono::milliseconds(5));
                              }};
    CheckpointState state = state_at(10);
    state.ranks = 3;
    save_checkpoint(job, writer ? &*writer : nullptr, state, std::vector{source});
  });
  EXPECT_THAT(testing::text_of(errors[1]), HasSubstr("the device is gone"));
  for (const int survivor : {0, 2}) {
    const std::exception_ptr error = errors[static_cast<std::size_t>(survivor)];
    EXPECT_THAT([&] { std::rethrow_exception(error); }, ThrowsMessage<PeerError>(HasSubstr("failed: the device is gone")))
        << survivor;
  }
}

TEST(SaveCheckpoint, ARankThatFailsLeavesTheEarlierOnes) {
  const TemporaryFolder folder;
  const auto errors = testing::run_ranks(testing::make_addresses(2), [&](JoinedJob& job) {
    std::optional<CheckpointWriter> writer;
    if (job.rank() == 0) writer.emplace(folder.path(), 2);
    CheckpointWriter* const mine = writer ? &*writer : nullptr;
    save_checkpoint(job, mine, state_at(10), tensors_at(10));
    const TensorSource bad{"x", DType::f32, Shape{1},
                           [](void*, std::int64_t, std::int64_t) { throw SystemError("the device is gone"); }};
    save_checkpoint(job, mine, state_at(20), job.rank() == 1 ? std::vector{bad} : tensors_at(20));
  });
  EXPECT_EQ(testing::text_of(errors[1]), "the device is gone");
  EXPECT_THAT(testing::text_of(errors[0]), HasSubstr("rank 1"));
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(10));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000020.partial"));
  expect_sound(*latest_checkpoint(folder.path()), 10);
}

}  // namespace
}  // namespace consist
