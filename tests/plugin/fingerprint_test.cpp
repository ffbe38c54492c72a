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
                       "-DLIST=" + (folder / "headers.txt"), "-P", CONSIST_SOURCE_DIR "/core/cmake/MakeFingerprint.cmake"});
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
    return test::run_child({CMAKE_COMMAND, "-DFOLDER=" + folder.path().string(), "-DOUTPUT=" + (folder / "checked"),
                            "-DLIST=" + (folder / "headers.txt"), "-P", CONSIST_SOURCE_DIR "/core/cmake/MakeFingerprint.cmake"});
  };
  const test::ChildResult same = looked_at();
  EXPECT_EQ(same.status, 0) << same.output;
  write_whole(folder / "a.h", "struct Pair {\n  int b;\n  int a;\n};\n");
  const test::ChildResult edited = looked_at();
  EXPECT_NE(edited.status, 0);
  EXPECT_THAT(edited.output, ::testing::ContainsRegex("a.h[[:space:]]+differ"));
  write_whole(folder / "a.h", "struct Pair {\n  int a;  // first\n  int b;\n};\n");
  EXPECT_EQ(looked_at().status, 0);
  write_whole(folder / "new.h", "int c;\n");
  EXPECT_THAT(looked_at().output, ::testing::ContainsRegex("new.h[[:space:]]+differ"));
}

}  // namespace
}  // namespace consist
