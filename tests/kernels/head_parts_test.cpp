// split and concat on every device: parts of heads, those that all heads share, and parts that are absent.
#include "consist/head_parts.h"

#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using test::DeviceKernel;
using test::expect_close;
using test::Value;
using test::Values;

struct HeadPartsCase {
  std::int64_t heads;
  const char* parts;
  std::vector<std::int64_t> channels;  ///< of a row of each part
};

// Words of 2 to 16 bytes, one head and several.
const std::vector<HeadPartsCase> head_parts_cases{
    {1, "12,4", {12, 4}},      {1, "5", {5}},        {3, "8,16", {24, 48}},           {5, "1,1", {5, 5}},
    {4, "3,2,7", {12, 8, 28}}, {3, "8,4*", {24, 4}}, {2, "6,2,3*,5*", {12, 4, 3, 5}}, {17, "16,8*", {272, 8}}};

TEST_P(DeviceKernel, ConcatOfPartsOfHeads) {
  for (const HeadPartsCase& c : head_parts_cases) {
    SCOPED_TRACE(c.parts);
    Values in;
    for (const std::int64_t channels : c.channels) in.emplace_back(random({2, 3, channels}));
    const Attributes attributes{{"parts", std::string(c.parts)}};
    expect_close(run("concat", in, attributes)[0], *reference::concat(in, c.parts)[0], 0, "whole");
    if (in.size() == 1) continue;
    in.back().reset();
    expect_close(run("concat", in, attributes)[0], *reference::concat(in, c.parts)[0], 0, "zeros");
  }
}

TEST_P(DeviceKernel, SplitIntoPartsOfHeads) {
  for (const HeadPartsCase& c : head_parts_cases) {
    SCOPED_TRACE(c.parts);
    const std::int64_t channels = c.heads * HeadParts::parse(c.parts).head_dim();
    const Value x = random({2, 3, channels});
    const Values found = run("split", {x}, {{"parts", std::string(c.parts)}}), expected = reference::split(x, c.parts);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
      EXPECT_EQ(expected[k]->shape.last(), c.channels[k]);
      expect_close(found[k], *expected[k], HeadParts::parse(c.parts).all()[k].shared ? tolerance() : 0, "part");
    }
  }
}

}  // namespace
}  // namespace consist
