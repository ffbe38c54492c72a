// The fingerprint follows from what the public headers declare, not from how that is commented and laid out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

std::string fingerprint_of(const TemporaryFolder& folder, const std::string& header) {
  write_whole(folder / "a.h", header);
  const test::ChildResult result =
      test::run_child({CMAKE_COMMAND, "-DHEADERS=" + (folder / "a.h"), "-DOUTPUT=" + (folder / "fingerprint.h"),
                       "-DLIST=" + (folder / "headers.txt"), "-DSDK=" + (folder / "sdk"), "-P",
                       CONSIST_SOURCE_DIR "/core/cmake/MakeFingerprint.cmake"});
  EXPECT_EQ(result.status, 0) << result.output;
  return read_whole(folder / "fingerprint.h");
}

TEST(Fingerprint, CommentsAndWhiteSpaceDoNotCount) {
  const TemporaryFolder folder;
  const std::string one = fingerprint_of(folder, "// A pair.\nstruct Pair {\n  int a;  ///< first\n  int b;\n};\n");
  EXPECT_NE(one.find("CONSIST_HEADERS_HASH"), std::string::npos);
  EXPECT_EQ(fingerprint_of(folder, "/* Two\n * numbers. */\nstruct Pair {\n    int a;\n\n    int b;  // second; [last]\n};\n"),
            one);
  EXPECT_NE(fingerprint_of(folder, "struct Pair {\n  int b;\n  int a;\n};\n"), one);
}

// Looks at headers as the build of a plugin against an installed Consist does.
TEST(Fingerprint, AHeaderThatWasEditedInPlaceIsNamed) {
  const TemporaryFolder folder;
  fingerprint_of(folder, "struct Pair {\n  int a;\n  int b;\n};\n");
  const auto looked_at = [&] {
    return test::run_child({CMAKE_COMMAND, "-DFOLDER=" + (folder / "sdk"), "-DOUTPUT=" + (folder / "checked"),
                            "-DLIST=" + (folder / "headers.txt"), "-DSDK=" + (folder / "sdk"), "-P",
                            CONSIST_SOURCE_DIR "/core/cmake/MakeFingerprint.cmake"});
  };
  const test::ChildResult same = looked_at();
  EXPECT_EQ(same.status, 0) << same.output;
  const std::string header = folder / "sdk/a.h", text = read_whole(header);
  const std::size_t declared = text.find("};\n") + 3;
  ASSERT_NE(text.find("a.h ", declared), std::string::npos) << "it has no mark: " << text;
  write_whole(header, "struct Pair {\n  int b;\n  int a;\n};\n" + text.substr(declared));
  const test::ChildResult edited = looked_at();
  EXPECT_NE(edited.status, 0);
  EXPECT_THAT(edited.output, ::testing::ContainsRegex("a.h[[:space:]]+differ"));
  write_whole(header, text.substr(0, declared));  // a plugin would not say that it includes it
  EXPECT_THAT(looked_at().output, ::testing::ContainsRegex("a.h[[:space:]]+differ"));
  write_whole(header, "struct Pair {\n  int a;  // first\n  int b;\n};\n" + text.substr(declared));
  EXPECT_EQ(looked_at().status, 0);
  write_whole(folder / "sdk/new.h", "int c;\n");
  EXPECT_THAT(looked_at().output, ::testing::ContainsRegex("new.h[[:space:]]+differ"));
}

}  // namespace
}  // namespace consist
