#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "consist/program.h"

namespace consist {
namespace {

TEST(AttributesKey, IsEqualForEqualAttributesOnly) {
  const std::int64_t bits_of_a = 0x3ff0000000000000;  // those of the double 1.0
  const std::vector<Attributes> different{
      {},
      {{"a", std::int64_t{1}}},
      {{"a", 1.0}},
      {{"a", bits_of_a}},
      {{"a", "1"}},
      {{"b", std::int64_t{1}}},
      {{"a", 0.0}},
      {{"a", -0.0}},
      {{"a", std::nextafter(1.0, 2.0)}},
      {{"a", std::int64_t{1}}, {"b", std::int64_t{2}}},
      {{"b", std::int64_t{2}}, {"a", std::int64_t{1}}},
      {{"a", "x b=y"}},
      {{"a", "x"}, {"b", "y"}},
      {{"a", "xy"}, {"b", ""}},
      {{"a", std::string("x\0y", 3)}},
  };
  std::set<std::string> keys;
  for (const Attributes& attributes : different) {
    EXPECT_TRUE(keys.insert(attributes.key()).second) << "number " << keys.size();
    EXPECT_EQ(Attributes(attributes).key(), attributes.key());
  }
}

}  // namespace
}  // namespace consist
