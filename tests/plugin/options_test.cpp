// Options of plugins: what is legal for each kind, and how a plugin reads its values.
#include "consist/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "consist/error.h"
#include "consist/strategy.h"
#include "core/config/option_value.h"
#include "core/config/run_facts.h"
#include "core/plugin/host.h"
#include "tests/plugin/test_plugins.h"

namespace consist {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The options that the sample plugin would be made with.
Options checked(const std::map<std::string, std::string>& given) {
  PluginHost host({test::plugin_folder("sample")});
  host.make<ParallelStrategy>("strategy", "sample", given);
  Options options("sample");
  for (const OptionSpec& spec : host.option_table("strategy", "sample")) {
    const auto value = given.find(spec.name);
    value == given.end() ? options.set_fallback(spec) : options.set(spec, value->second);
  }
  return options;
}

std::string refusal(const std::string& option, const std::string& value) {
  return message_of<UsageError>([&] { checked({{option, value}}); });
}

TEST(Options, HaveTheirDefaults) {
  const Options options = checked({});
  EXPECT_FALSE(options.flag("flag"));
  EXPECT_EQ(options.integer("integer"), 7);
  EXPECT_EQ(options.real("real"), 0.5);
  EXPECT_EQ(options.integer("bytes"), 25 << 20);
  EXPECT_EQ(options.text("text"), "");
  EXPECT_EQ(options.text("choice"), "red");
}

TEST(Options, LegalValuesAreReadAndNormalised) {
  for (const char* yes : {"true", "1", "yes", "on"}) EXPECT_EQ(checked({{"flag", yes}}).all().at("flag"), "true") << yes;
  for (const char* no : {"false", "0", "no", "off"}) EXPECT_EQ(checked({{"flag", no}}).all().at("flag"), "false") << no;
  EXPECT_EQ(checked({{"integer", "-9223372036854775808"}}).integer("integer"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(checked({{"integer", "007"}}).all().at("integer"), "7");
  EXPECT_EQ(checked({{"real", "-1.5e-3"}}).real("real"), -1.5e-3);
  EXPECT_EQ(checked({{"bytes", "3k"}}).integer("bytes"), 3000);
  EXPECT_EQ(checked({{"bytes", "3Gi"}}).integer("bytes"), 3LL << 30);
  EXPECT_EQ(checked({{"bytes", "512"}}).all().at("bytes"), "512");
  EXPECT_EQ(checked({{"text", "any=thing, at all"}}).text("text"), "any=thing, at all");
  EXPECT_EQ(checked({{"choice", "green"}}).text("choice"), "green");
}

TEST(Options, IllegalValuesAreRefusedWithWhatIsLegal) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"flag", {"", "maybe", "TRUE", "2"}},
      {"integer", {"", "x", "1.5", "1e3", "+1", " 1", "1 ", "0x10", "9223372036854775808"}},
      {"real", {"", "x", "nan", "inf", "-inf", "1e400", "1,5", "0.5 "}},
      {"bytes", {"", "Mi", "-1", "1.5M", "1X", "1 M", "1mi", "9223372036854775807k"}},
      {"choice", {"", "blue", "r", "re", "red|green", "RED"}},
  };
  const std::map<std::string, std::string> legal = {{"flag", "true or false"},
                                                    {"integer", "a whole number of 64 bits"},
                                                    {"real", "a finite number"},
                                                    {"bytes", "a number of bytes such as 1000, 25M or 512Ki"},
                                                    {"choice", "one of red, green"}};
  for (const auto& [option, values] : cases) {
    for (const char* value : values) {
      EXPECT_THAT(refusal(option, value),
                  HasSubstr("--sample." + std::string(option) + " is '" + value + "'; it must be " + legal.at(option)));
    }
  }
}

TEST(Options, UnknownAndAbbreviatedOnesAreRefusedWithWhatThereIs) {
  for (const char* option : {"colour", "choi", "Choice", "sample.choice", ""}) {
    EXPECT_THAT(refusal(option, "red"), AllOf(HasSubstr("plugin 'sample' has no option '" + std::string(option) + "'"),
                                              HasSubstr("It has flag integer real bytes text choice")));
  }
}

TEST(Options, TunableValuesBeginWithTheDefaultAndAreLegal) {
  using std::string;
  const auto of = [](OptionKind kind, const char* fallback, const char* choices, const char* tunable) {
    return tunable_values({"size", kind, fallback, "", choices, "", tunable}, "--p.size");
  };
  EXPECT_EQ(of(OptionKind::bytes, "25Mi", "", ""), std::vector<string>{});
  EXPECT_EQ(of(OptionKind::bytes, "26214400", "", "10M|1G|25Mi"),
            (std::vector<string>{"25Mi", "10M", "1G"}));  // as they are written
  EXPECT_EQ(of(OptionKind::flag, "false", "", "true|false"), (std::vector<string>{"false", "true"}));
  const auto refusal = [&](OptionKind kind, const char* fallback, const char* choices, const char* tunable) {
    return message_of<UsageError>([&] { of(kind, fallback, choices, tunable); });
  };
  EXPECT_THAT(refusal(OptionKind::integer, "1", "1..", "1|0"),
              HasSubstr("a tunable value of --p.size is '0'; it must be at least 1"));
  EXPECT_THAT(refusal(OptionKind::choice, "a", "a|b", "b"), HasSubstr("are 'b', without its default, 'a'"));
  EXPECT_THAT(refusal(OptionKind::bytes, "1Mi", "", "1Mi|2Mi|1048576"), HasSubstr("name '1048576' twice"));
}

TEST(Options, ADefaultMayDependOnStages) {
  const OptionSpec stage{"stage", OptionKind::choice, "2", "", "1|2", "", "2|1 beside stages"};
  EXPECT_EQ(default_of(stage, {}), "2");
  EXPECT_EQ(default_of(stage, {.stages = 4}), "1");
  EXPECT_EQ(tunable_values(stage, "--p.stage"), (std::vector<std::string>{"2", "1"})) << "the default first";
  EXPECT_EQ(tunable_values(stage, "--p.stage", {.stages = 4}), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(value_of(std::array{stage}, {}, "stage", {.stages = 4}), "1");
  EXPECT_EQ(value_of(std::array{stage}, {{"stage", "2"}}, "stage", {.stages = 4}), "2") << "what is given counts";
  EXPECT_EQ(defaults_by_facts(std::array{stage}, {}, {.stages = 4}), (std::map<std::string, std::string>{{"stage", "1"}}));
  EXPECT_TRUE(defaults_by_facts(std::array{stage}, {{"stage", "2"}}, {.stages = 4}).empty());
  const OptionSpec wrong{"stage", OptionKind::choice, "2", "", "1|2", "", "2|3 beside stages"};
  EXPECT_THAT(message_of<UsageError>([&] { tunable_values(wrong, "--p.stage"); }), HasSubstr("a tunable value of --p.stage is '3'"));
}

TEST(Options, ChunksDivideTheLayersOfTheModel) {
  const OptionSpec chunks{"chunks", OptionKind::integer, "2", "", "", "", "2|divisors(layers)"};
  EXPECT_EQ(tunable_values(chunks, "--p.chunks", {.stages = 4, .layers = 80}),
            (std::vector<std::string>{"2", "4", "5", "8", "10", "16", "20"}));
  EXPECT_EQ(tunable_values(chunks, "--p.chunks", {.stages = 16, .layers = 126}), (std::vector<std::string>{"2", "3", "6", "7"}));
  EXPECT_EQ(tunable_values(chunks, "--p.chunks"), (std::vector<std::string>{"2"})) << "of no model";
}

TEST(Options, APluginThatReadsAnotherOptionThanItsOwnIsToldSo) {
  const Options options = checked({});
  EXPECT_THAT(message_of<Error>([&] { options.text("colour"); }),
              HasSubstr("'sample' reads the option 'colour', which is not in its table"));
  EXPECT_THAT(message_of<Error>([&] { options.flag("choice"); }), HasSubstr("is no flag"));
  EXPECT_THAT(message_of<Error>([&] { options.integer("choice"); }), HasSubstr("is no integer"));
  EXPECT_THAT(message_of<Error>([&] { options.real("choice"); }), HasSubstr("is no number"));
}

}  // namespace
}  // namespace consist
