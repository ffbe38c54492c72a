// One safetensors file: what goes in comes out, the reference library's files read identically, and bad files are refused by
// name.
#include "core/weights/safetensors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "tests/python.h"
#include "tests/temporary_folder.h"
#include "tests/weights/sources.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string golden_folder = CONSIST_SOURCE_DIR "/tests/golden/safetensors";

void write_file(const std::string& path, const std::vector<TensorSource>& tensors) {
  AtomicFile file(path);
  write_safetensors(file, tensors, {{"format", "pt"}});
  file.publish();
}

std::vector<std::uint32_t> f32_bits(const SafetensorsFile& file, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(file.tensor(name).elements));
  file.read_f32(name, 0, values);
  std::vector<std::uint32_t> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) bits[i] = std::bit_cast<std::uint32_t>(values[i]);
  return bits;
}

TEST(Safetensors, ReadsWhatTheReferenceLibraryWrote) {
  const auto expected = nlohmann::json::parse(read_whole(golden_folder + "/expected.json"));
  const SafetensorsFile file(golden_folder + "/python.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), expected.size());
  int compared = 0;
  for (const auto& item : expected.items()) {
    const std::string& name = item.key();
    const nlohmann::json& entry = item.value();
    SCOPED_TRACE(name);
    EXPECT_EQ(nlohmann::json(file.tensor(name).shape), entry["shape"]);
    if (entry["dtype"] == "int64") {
      EXPECT_EQ(file.tensor(name).dtype, "I64");
      EXPECT_THAT([&] { f32_bits(file, name); },
                  ThrowsMessage<DataError>(AllOf(HasSubstr(name), HasSubstr("I64"))));
      continue;
    }
    EXPECT_EQ(f32_bits(file, name), entry["values"].get<std::vector<std::uint32_t>>());
    compared += static_cast<int>(entry["values"].size());
  }
  EXPECT_GT(compared, 700);
}

TEST(Safetensors, RoundTrip) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const float nan = std::numeric_limits<float>::signaling_NaN();
  write_file(path, {source_of<std::uint16_t>("half", DType::bf16, {3}, {0x3f80, 0x7fc1, 0x8000}),
                    f32_source("x", {2, 3}, {1, -0.0F, INFINITY, nan, 1e-45F, 3}), f32_source("scalar", {}, {7}),
                    f32_source("none", {0, 5}, {}), source_of<std::int32_t>("ids", DType::i32, {2}, {-5, 6})});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.shape("x"), (Shape{2, 3}));
  EXPECT_EQ(file.shape("scalar"), Shape{});
  EXPECT_EQ(f32_bits(file, "x")[3], std::bit_cast<std::uint32_t>(nan));
  EXPECT_EQ(f32_bits(file, "x")[1], 0x80000000U);
  EXPECT_THAT(f32_bits(file, "none"), ElementsAre());
  std::vector<std::uint16_t> half(3);
  file.read_bf16("half", 0, half);
  EXPECT_THAT(half, ElementsAre(0x3f80, 0x7fc1, 0x8000));
  std::vector<std::int32_t> ids(2);
  file.read_stored("ids", DType::i32, 0, 2, ids.data());
  EXPECT_THAT(ids, ElementsAre(-5, 6));
  // Aligned for readers that map the file, the narrow dtypes last.
  for (const auto& [name, tensor] : file.tensors()) EXPECT_EQ(tensor.offset % (tensor.dtype == "BF16" ? 2 : 4), 0) << name;
}

TEST(Safetensors, RangesOfALargeTensor) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::int64_t elements = 3'000'001;  // several blocks of the writer and the reader
  write_file(path, {ramp_source("x", elements)});
  const SafetensorsFile file(path);
  std::vector<float> values(1000);
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1'048'000}, elements - 1000}) {
    file.read_f32("x", first, values);
    for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(first + i));
  }
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(elements));
  file.read_bf16("x", 0, rounded);
  EXPECT_EQ(rounded[2'500'000], 0x4a18 + 1);  // 2,500,000 = 0x4a189680: rounds up
  EXPECT_EQ(rounded[255], 0x437f);
  EXPECT_EQ(rounded[257], 0x4380);  // a tie, to even
  EXPECT_EQ(rounded[259], 0x4382);
  EXPECT_THROW(file.read_f32("x", elements - 999, values), DataError);
  EXPECT_THROW(file.read_f32("x", -1, values), DataError);
  EXPECT_THROW(file.read_f32("x", std::numeric_limits<std::int64_t>::max(), values), DataError);
}

TEST(Safetensors, EveryHalf) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::string header = R"({"x":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})";
  std::string bytes = raw_safetensors(header, 0);
  for (int bits = 0; bits < 65536; ++bits) {
    bytes += static_cast<char>(bits & 0xff);
    bytes += static_cast<char>(bits >> 8);
  }
  write_whole(path, bytes);
  std::vector<float> values(65536);
  SafetensorsFile(path).read_f32("x", 0, values);
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const float magnitude = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                            : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                            : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    const float expected = bits < 32768 ? magnitude : -magnitude;
    const float found = values[static_cast<std::size_t>(bits)];
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(expected)) << bits;
    }
  }
}

TEST(Safetensors, AHalfReadAsBfloat16IsRounded) {
  const SafetensorsFile file(golden_folder + "/python.safetensors");
  std::vector<float> exact(static_cast<std::size_t>(file.tensor("f16").elements));
  std::vector<std::uint16_t> rounded(exact.size());
  file.read_f32("f16", 0, exact);
  file.read_bf16("f16", 0, rounded);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(rounded[i]) << 16);
    if (std::isinf(exact[i])) {
      ASSERT_EQ(value, exact[i]);
    } else {
      ASSERT_LE(std::abs(value - exact[i]), std::abs(exact[i]) / 256) << i;
    }
  }
}

TEST(Safetensors, UnknownNamesAndOtherDtypes) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  write_file(path, {f32_source("x", {1}, {1})});
  const SafetensorsFile file(path);
  EXPECT_FALSE(file.has("y"));
  EXPECT_THAT([&] { file.tensor("y"); }, ThrowsMessage<DataError>(AllOf(HasSubstr(path), HasSubstr("no tensor y"))));
  std::uint16_t half = 0;
  EXPECT_THAT([&] { file.read_stored("x", DType::bf16, 0, 1, &half); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("stored as F32"), HasSubstr("BF16"))));
}

TEST(Safetensors, TwoTensorsOfOneNameAreNotWritten) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_file(folder / "a.safetensors", {ramp_source("x", 1), ramp_source("x", 1)}), UsageError);
  EXPECT_THROW(write_file(folder / "a.safetensors", {ramp_source("__metadata__", 1)}), UsageError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Safetensors, MissingFilesAreNamed) {
  EXPECT_THAT([] { SafetensorsFile("/nowhere/a.safetensors"); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("/nowhere/a.safetensors"), HasSubstr("No such file"))));
  EXPECT_THAT([] { SafetensorsFile("/tmp"); }, ThrowsMessage<SystemError>(HasSubstr("folder")));
}

TEST(Safetensors, EveryCutOffFileIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  write_file(path, {ramp_source("x", 10), ramp_source("y", 3)});
  const std::string whole = read_whole(path);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_whole(path, whole.substr(0, bytes));
    EXPECT_THAT([&] { SafetensorsFile file(path); }, ThrowsMessage<DataError>(AllOf(HasSubstr(path), HasSubstr("cut off"))))
        << bytes;
  }
  write_whole(path, whole + "x");
  EXPECT_THAT([&] { SafetensorsFile file(path); }, ThrowsMessage<DataError>(HasSubstr("1 bytes follow")));
}

TEST(Safetensors, AFileThatIsCutOffWhileItIsOpen) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  write_file(path, {ramp_source("x", 1000)});
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 2000);
  std::vector<float> values(1000);
  EXPECT_THAT([&] { file.read_f32("x", 0, values); }, ThrowsMessage<DataError>(AllOf(HasSubstr(path), HasSubstr("cut off"))));
}

struct Bad {
  const char* name;
  std::string header;
  std::size_t data;
  const char* message;
};

class BadHeader : public ::testing::TestWithParam<Bad> {};

TEST_P(BadHeader, IsRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder / "bad.safetensors";
  write_whole(path, raw_safetensors(GetParam().header, GetParam().data));
  EXPECT_THAT([&] { SafetensorsFile file(path); },
              ThrowsMessage<DataError>(AllOf(HasSubstr(path), HasSubstr(GetParam().message))));
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, BadHeader,
    ::testing::Values(
        Bad{"NoJson", "{not json", 0, "no valid JSON"}, Bad{"NotAnObject", "[1]", 0, "does not start with '{'"},
        Bad{"LeadingSpace", " {}", 0, "does not start with '{'"}, Bad{"BadUtf8", "{\"\xff\":{}}", 0, "no valid JSON"},
        Bad{"TrailingText", "{}x", 0, "no valid JSON"}, Bad{"Deep", "{\"a\":" + std::string(100'000, '['), 0, "nested deeper"},
        Bad{"EntryNoObject", R"({"x":3})", 0, "\"x\""},
        Bad{"NoDtype", R"({"x":{"shape":[1],"data_offsets":[0,4]}})", 4, "no dtype"},
        Bad{"NoShape", R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4, "no shape"},
        Bad{"NoOffsets", R"({"x":{"dtype":"F32","shape":[1]}})", 4, "no data_offsets"},
        Bad{"OneOffset", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "no data_offsets"},
        Bad{"UnknownDtype", R"({"x":{"dtype":"Q4_K","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype \"Q4_K\""},
        Bad{"NegativeExtent", R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape"},
        Bad{"FractionalExtent", R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "shape"},
        Bad{"HugeNumber", R"({"x":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4, "shape"},
        Bad{"ShapeOverflows", R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows"},
        Bad{"BitsOverflow", R"({"x":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "overflows"},
        Bad{"HalfBytes", R"({"x":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "whole bytes"},
        Bad{"Backwards", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", 8, "ends before it begins"},
        Bad{"WrongSize", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "4 bytes, but F32 of its shape takes 8"},
        Bad{"PastTheEnd", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "cut off"},
        Bad{"FarPastTheEnd", R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807]}})", 4,
            "cut off"},
        Bad{"Overlap",
            R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
            "overlaps"},
        Bad{"SharedRange",
            R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
            "overlaps"},
        Bad{"Gap",
            R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12,
            "4 bytes before tensor \"y\" belong to no tensor"},
        Bad{"Trailing", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "4 bytes follow"},
        Bad{"Duplicate",
            R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
            "\"x\" twice"},
        Bad{"DuplicateField", R"({"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "\"x.dtype\" twice"},
        Bad{"MetadataNoText", R"({"__metadata__":{"a":1}})", 0, "__metadata__"},
        Bad{"MetadataNoObject", R"({"__metadata__":[]})", 0, "__metadata__"},
        Bad{"ControlCharacters", R"({"\u001b[2J":3})", 0, "\\u001b"}),
    [](const auto& param) { return std::string(param.param.name); });

/// Reading took 39 s of them when every tensor was visited again after each, and writing searched all names before each.
TEST(Safetensors, ManyTensorsTakeLinearTime) {
  constexpr int count = 40'000;
  const TemporaryFolder folder;
  std::vector<TensorSource> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.push_back({"model.layers." + std::to_string(i) + ".weight", DType::u8, Shape{1},
                       [](void* to, std::int64_t, std::int64_t bytes) { std::memset(to, 1, static_cast<std::size_t>(bytes)); }});
  }
  const std::clock_t begin = std::clock();
  write_file(folder / "many.safetensors", tensors);
  EXPECT_EQ(SafetensorsFile(folder / "many.safetensors").tensors().size(), std::size_t{count});
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5) << "of the processor's seconds";
}

TEST(Safetensors, HeadersThatAreNoneAndPlaceholders) {
  const TemporaryFolder folder;
  const std::string path = folder / "bad.safetensors";
  write_whole(path, std::string(8, '\xff') + "{}");
  EXPECT_THAT([&] { SafetensorsFile file(path); }, ThrowsMessage<DataError>(HasSubstr("18446744073709551615")));
  write_whole(path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  EXPECT_THAT([&] { SafetensorsFile file(path); }, ThrowsMessage<DataError>(HasSubstr("git lfs pull")));
  write_whole(path, raw_safetensors("{}", 0));
  EXPECT_TRUE(SafetensorsFile(path).tensors().empty());
  write_whole(path, raw_safetensors("{}      ", 0));
  EXPECT_TRUE(SafetensorsFile(path).tensors().empty());
}

}  // namespace
}  // namespace consist
