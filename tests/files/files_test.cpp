// Files that appear only when whole, files that are read by position, and SHA-256.
#include "consist/files.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/base/sha256.h"
#include "tests/temporary_folder.h"

namespace {

/// Log of the process's file operations, in order, while it is not null: "sync PATH", "rename FROM TO".
std::vector<std::string>* seen = nullptr;

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void note_sync(int fd) {
  if (seen != nullptr) seen->push_back("sync " + std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string());
}

}  // namespace

// The library calls these: the test program's own come first.
extern "C" int fsync(int fd) {
  note_sync(fd);
  return real<int(int)>("fsync")(fd);
}
extern "C" int fdatasync(int fd) {
  note_sync(fd);
  return real<int(int)>("fdatasync")(fd);
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (seen != nullptr) seen->push_back(std::string("rename ") + from + " " + to);
  return real<int(const char*, const char*)>("rename")(from, to);
}

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

bool exists(const std::string& path) {
  return std::filesystem::exists(path);
}

TEST(Sha256, KnownAnswers) {  // FIPS 180-4's examples
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AFileInSeveralBlocks) {
  const TemporaryFolder folder;
  const std::string text(10'000'001, 'x');
  write_whole(folder / "a", text);
  EXPECT_EQ(sha256_of(InputFile(folder / "a")), sha256_of(text));
  Sha256 pieces;
  pieces.update(text.data(), 7);
  pieces.update(text.data() + 7, text.size() - 7);
  EXPECT_EQ(pieces.hex(), sha256_of(text));
}

TEST(BlockedSha256, IsThatOfTheBlocksDigests) {
  const TemporaryFolder folder;
  const auto block = static_cast<std::size_t>(BlockedSha256::block);
  std::string text(3 * block + 5, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7U);
  const auto made = [&](std::size_t size, int threads) {
    BlockedSha256 digest(threads);
    for (std::size_t at = 0; at < size; at += 7'000'001)
      digest.update(text.data() + at, std::min<std::size_t>(7'000'001, size - at));
    return digest.hex();
  };
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, block, block + 1, 2 * block, text.size()}) {
    SCOPED_TRACE(size);
    std::string digests;
    for (std::size_t at = 0; at < size; at += block) digests += sha256_of(text.substr(at, std::min(block, size - at)));
    const std::string expected = sha256_of(size <= block ? text.substr(0, size) : digests);
    write_whole(folder / "a", text.substr(0, size));
    for (const int threads : {1, 2, 7}) {
      EXPECT_EQ(made(size, threads), expected) << threads;
      EXPECT_EQ(blocked_sha256_of(InputFile(folder / "a"), threads), expected) << threads;
    }
  }
}

TEST(AtomicFile, IsSeenOnlyWhenWhole) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  write_whole(path, "before");
  {
    AtomicFile file(path);
    file.reserve(5);
    file.write("aft", 3);
    file.write("er", 2);
    file.finish();
    EXPECT_EQ(read_whole(path), "before");
    file.publish();
    EXPECT_EQ(file.bytes(), 5);
  }
  EXPECT_EQ(read_whole(path), "after");
}

TEST(AtomicFile, IsOnTheDiskBeforeItHasItsName) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  AtomicFile file(path);
  const std::string partial = file.partial_path();
  file.write("x", 1);
  std::vector<std::string> calls;
  seen = &calls;
  file.commit();
  seen = nullptr;
  // A power failure after the rename finds the bytes, and after commit() the name.
  EXPECT_THAT(calls,
              ::testing::ElementsAre("sync " + partial, "rename " + partial + " " + path, "sync " + folder.path().string()));
}

TEST(AtomicFile, IsRemovedIfItIsNotPublished) {
  const TemporaryFolder folder;
  std::string partial;
  {
    AtomicFile file(folder / "a");
    file.write("x", 1);
    partial = file.partial_path();
    EXPECT_TRUE(exists(partial));
    const AtomicFile moved(std::move(file));
    EXPECT_EQ(moved.partial_path(), partial);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(AtomicFile, LessThanWasReservedIsNoTrail) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.reserve(100);
  file.write("x", 1);
  file.commit();
  EXPECT_EQ(read_whole(folder / "a"), "x");
}

TEST(AtomicFile, WhereItCannotBeWritten) {
  EXPECT_THAT(
      [] { AtomicFile("/nowhere/a"); },
      ThrowsMessage<SystemError>(AllOf(HasSubstr("/nowhere/a"), HasSubstr("No such file"), HasSubstr("check that its folder"))));
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  EXPECT_THAT([&] { file.reserve(std::int64_t{1} << 60); },
              ThrowsMessage<SystemError>(
                  AllOf(HasSubstr(folder / "a"), HasSubstr("it needs 1152921504606846976 bytes"), HasSubstr("are free"))));
}

TEST(AtomicFile, TheOrderOfItsCalls) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  EXPECT_THROW(file.publish(), ProgramError);
  file.commit();
  EXPECT_THROW(file.commit(), ProgramError);
}

TEST(InputFile, ReadsRangesAndNamesWhatIsMissing) {
  const TemporaryFolder folder;
  write_whole(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  std::string range(4, ' ');
  file.read(3, range.data(), 4);
  EXPECT_EQ(range, "3456");
  EXPECT_THAT([&] { file.read(8, range.data(), 4); },
              ThrowsMessage<DataError>(AllOf(HasSubstr(folder / "a"), HasSubstr("cut off"), HasSubstr("byte 10"))));
  EXPECT_EQ(read_text(folder / "a", 10), "0123456789");
  EXPECT_THAT([&] { read_text(folder / "a", 9); }, ThrowsMessage<DataError>(HasSubstr("10 bytes")));
}

TEST(SystemError, TooManyOpenFilesNamesTheLimitAndWhatRaisesIt) {
  const TemporaryFolder folder;
  write_whole(folder / "a", "x");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  const int next = ::dup(STDIN_FILENO);  // the lowest number that is free: with it as the limit nothing can be opened
  ASSERT_GE(next, 0);
  ::close(next);
  low.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::string reading, writing;
  try {
    InputFile file(folder / "a");
  } catch (const SystemError& error) {
    reading = error.what();
  }
  try {
    AtomicFile file(folder / "b");
  } catch (const SystemError& error) {
    writing = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  for (const std::string& text : {reading, writing}) {
    EXPECT_THAT(text, AllOf(HasSubstr(folder.path().string()), HasSubstr("Too many open files"),
                            HasSubstr("may have " + std::to_string(next) + " files"), HasSubstr("ulimit -n")));
  }
}

TEST(InputFile, WhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { InputFile(folder.path()); }, ThrowsMessage<SystemError>(HasSubstr("folder")));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);  // opening it must not wait for a writer
  EXPECT_THAT([&] { InputFile(folder / "pipe"); }, ThrowsMessage<SystemError>(HasSubstr("no regular file")));
  EXPECT_THAT([&] { InputFile(folder / "none"); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr(folder / "none"), HasSubstr("No such file"))));
}

}  // namespace
}  // namespace consist
