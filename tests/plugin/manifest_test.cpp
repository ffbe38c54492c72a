// Records of plugin files: what a whole file says, and that no other file gets further than a clear refusal.
#include "core/plugin/manifest.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <set>

#include "consist/error.h"
#include "tests/plugin/test_plugins.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Manifest : public ::testing::Test {
 protected:
  /// The message of the error for a file of these bytes.
  std::string problem_of(const std::string& bytes) {
    write_whole(copy_, bytes);
    return message_of<DataError>([&] { read_manifest(copy_); });
  }
  /// The sample with one field of its ELF header changed.
  template <typename T>
  std::string with_header(std::size_t offset, T value) {
    std::string bytes = whole_;
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return bytes;
  }
  /// The sample with a field of its record changed.
  template <typename T>
  std::string with_record(std::size_t offset, const T& value) {
    std::string bytes = whole_;
    std::memcpy(bytes.data() + record_ + offset, &value, sizeof value);
    return bytes;
  }

  TemporaryFolder folder_;
  std::string copy_ = folder_ / "copy.so";
  std::string whole_ = read_whole(test::plugin_file("sample"));
  std::size_t record_ = whole_.find(std::string(PluginInfo{}.magic, sizeof PluginInfo{}.magic));
};

TEST_F(Manifest, SaysWhatThePluginSays) {
  const PluginManifest info = read_manifest(test::plugin_file("sample"));
  EXPECT_STREQ(info.kind, "strategy");
  EXPECT_STREQ(info.name, "sample");
  EXPECT_STREQ(info.version, "1.2.3");
  EXPECT_STREQ(info.summary, "changes nothing");
  EXPECT_STREQ(info.fingerprint, CONSIST_FINGERPRINT);
  EXPECT_EQ(incompatibility(info), "");
}

TEST_F(Manifest, AFileCutOffAnywhereIsRefused) {
  Elf64_Ehdr header;
  std::memcpy(&header, whole_.data(), sizeof header);
  std::set<std::size_t> lengths;
  auto around = [&](std::size_t at) {
    for (std::size_t length : {at - 1, at, at + 1}) {
      if (length < whole_.size()) lengths.insert(length);
    }
  };
  for (std::size_t i = 0; i <= sizeof header; ++i) lengths.insert(i);
  ASSERT_GT(header.e_shnum, 20);
  for (int i = 0; i < header.e_shnum; ++i) {
    const std::size_t at = header.e_shoff + static_cast<std::size_t>(i) * sizeof(Elf64_Shdr);
    Elf64_Shdr section;
    std::memcpy(&section, whole_.data() + at, sizeof section);
    around(at);
    around(section.sh_offset);
    around(section.sh_offset + section.sh_size / 2);
    around(section.sh_offset + section.sh_size);
  }
  for (int i = 0; i < header.e_phnum; ++i) around(header.e_phoff + static_cast<std::size_t>(i) * sizeof(Elf64_Phdr));
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) lengths.insert(random() % whole_.size());
  around(whole_.size());

  ASSERT_GT(lengths.size(), 250u);
  for (const std::size_t length : lengths) {
    EXPECT_THAT(problem_of(whole_.substr(0, length)), AnyOf(HasSubstr("is cut off"), HasSubstr("is no ELF file")))
        << "cut to " << length << " bytes";
  }
}

// Segments that lie behind the end of the file would end the process when they are mapped, wherever the tables lie.
TEST_F(Manifest, SegmentsBehindTheEndAreRefused) {
  Elf64_Ehdr header;
  std::memcpy(&header, whole_.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; ++i) {
    std::string bytes = whole_;
    const std::size_t at = header.e_phoff + static_cast<std::size_t>(i) * sizeof(Elf64_Phdr) + offsetof(Elf64_Phdr, p_filesz);
    const std::uint64_t size = whole_.size() + 1;
    std::memcpy(bytes.data() + at, &size, sizeof size);
    EXPECT_THAT(problem_of(bytes), HasSubstr("cut off or damaged")) << "segment " << i;
  }
}

TEST_F(Manifest, DamageIsRefusedOrHarmless) {
  Elf64_Ehdr header;
  std::memcpy(&header, whole_.data(), sizeof header);
  std::mt19937 random(2);
  int refused = 0;
  for (int i = 0; i < 1200; ++i) {
    std::string bytes = whole_;
    // Where the reader looks: the header, the segments, the sections' table, the record.
    const std::pair<std::size_t, std::size_t> places[] = {{0, sizeof header},
                                                          {header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr)},
                                                          {header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr)},
                                                          {record_, sizeof(PluginInfo)}};
    const auto [begin, size] = places[i % 4];
    for (int flips = 1 + i % 3; flips > 0; --flips) bytes[begin + random() % size] = static_cast<char>(random());
    write_whole(copy_, bytes);
    try {
      incompatibility(read_manifest(copy_));
    } catch (const DataError& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr(copy_));
    }
  }
  EXPECT_GT(refused, 300);
}

TEST_F(Manifest, WhatIsNoPluginIsNamed) {
  EXPECT_THAT(problem_of(""), HasSubstr("is no ELF file"));
  EXPECT_THAT(problem_of("#!/bin/sh\necho this is a script and no library\n"), HasSubstr("is no ELF file"));
  EXPECT_THAT(problem_of(std::string(4096, '\0')), HasSubstr("is no ELF file"));
  EXPECT_THAT(problem_of(with_header(EI_CLASS, ELFCLASS32)), HasSubstr("another word size"));
  EXPECT_THAT(problem_of(with_header(EI_DATA, ELFDATA2MSB)), HasSubstr("byte order"));
  EXPECT_THAT(problem_of(with_header(offsetof(Elf64_Ehdr, e_machine), Elf64_Half{EM_RISCV})),
              HasSubstr("another processor (ELF machine 243"));
  EXPECT_THAT(problem_of(with_header(offsetof(Elf64_Ehdr, e_type), Elf64_Half{ET_REL})), HasSubstr("no shared object"));
  EXPECT_THAT(problem_of(with_header(offsetof(Elf64_Ehdr, e_shoff), Elf64_Off{0})), HasSubstr("no section table"));
  EXPECT_THAT(problem_of(read_whole(TEST_PLUGINS "/no_manifest/consist_test_no_manifest.so")),
              HasSubstr("no section .consist_plugin"));
}

TEST_F(Manifest, NothingButFilesIsOpened) {
  EXPECT_THAT(message_of<DataError>([&] { read_manifest(folder_.path()); }), HasSubstr("no regular file"));
  EXPECT_THAT(message_of<DataError>([&] { read_manifest(folder_ / "absent"); }), HasSubstr("no regular file"));
  const std::string pipe = folder_ / "pipe.so";  // opening it would wait for a writer
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(message_of<DataError>([&] { read_manifest(pipe); }), HasSubstr("no regular file"));
}

TEST_F(Manifest, RecordsOfAnotherFormAreRefused) {
  ASSERT_NE(record_, std::string::npos);
  EXPECT_THAT(problem_of(with_record(0, 'X')), HasSubstr("wrong magic"));
  EXPECT_THAT(problem_of(with_record(offsetof(PluginInfo, record_bytes), std::uint32_t{12})), HasSubstr("rebuild the plugin"));
  std::array<char, sizeof PluginInfo{}.name> endless;
  endless.fill('a');
  EXPECT_THAT(problem_of(with_record(offsetof(PluginInfo, name), endless)), HasSubstr("does not end"));
  EXPECT_THAT(problem_of(with_record(offsetof(PluginInfo, summary), '\033')), HasSubstr("control characters"));
  EXPECT_THAT(problem_of(with_record(offsetof(PluginInfo, name), '\0')), HasSubstr("its plugin is called ''"));
  EXPECT_THAT(message_of<DataError>([] { read_manifest(test::plugin_file("name")); }), HasSubstr("its plugin is called 'na.me'"));
}

TEST_F(Manifest, ForeignPluginsAreIncompatible) {
  PluginManifest info = read_manifest(test::plugin_file("fingerprint"));
  EXPECT_THAT(incompatibility(info),
              AllOf(HasSubstr("headers-00000000deadbeef/"), HasSubstr(CONSIST_FINGERPRINT), HasSubstr("rebuild it")));
  EXPECT_THAT(incompatibility(read_manifest(test::plugin_file("kind"))), HasSubstr("its kind is 'locomotive'"));
  info = read_manifest(test::plugin_file("sample"));
  info.api_version = 77;
  EXPECT_THAT(incompatibility(info),
              AllOf(HasSubstr("plugin API 77"), HasSubstr("this build " + std::to_string(plugin_api_version))));
}

TEST_F(Manifest, AnotherCudaIsRefused) {
  PluginManifest info = read_manifest(test::plugin_file("cuda"));
  EXPECT_EQ(info.cuda_major, 99u);
  EXPECT_THAT(incompatibility(info, 12),
              AllOf(HasSubstr("it was built with CUDA 99"), HasSubstr("this build's plugins with CUDA 12"),
                    HasSubstr("rebuild it with a CUDA toolkit 12.x")));
  EXPECT_EQ(incompatibility(info, 99), "");
  EXPECT_EQ(incompatibility(info, 0), "") << "a build without CUDA has nothing that it could disagree with";
  info = read_manifest(test::plugin_file("sample"));
  EXPECT_EQ(info.cuda_major, 0u);
  EXPECT_EQ(incompatibility(info, 12), "") << "a plugin without CUDA suits every build";
  const std::string device = CONSIST_BINARY_DIR "/lib/consist/plugins/device-cuda.so";
  if (std::filesystem::exists(device)) {
    EXPECT_EQ(read_manifest(device).cuda_major, static_cast<std::uint32_t>(cuda_major_of_build()));
  }
}

}  // namespace
}  // namespace consist
