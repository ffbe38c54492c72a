// The fingerprint follows from what the public headers declare, not from how that is commented and laid out.
#include <gtest/gtest.h>

#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

std::string fingerprint_of(const TemporaryFolder& folder, const std::string& header) {
  write_whole(folder / "a.h", header);
  const test::ChildResult result =
      test::run_child({CMAKE_COMMAND, "-DHEADERS=" + (folder / "a.h"), "-DOUTPUT=" + (folder / "fingerprint.h"), "-P",
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

}  // namespace
}  // namespace consist
