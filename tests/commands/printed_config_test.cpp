// --print-config and the table of options: what is written is read back as the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "consist/error.h"
#include "core/config/option_value.h"
#include "tests/commands/config_file_case.h"

namespace consist {
namespace {

using test::host;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PrintedConfig : public test::ConfigFileTest {};

// As compare sets them, row by row.
TEST(OptionTable, TransportsTakeThePlaceOfAllThatWereThere) {
  RunConfig config;
  const RunOption& transport = *find_run_option("transport");
  set_option(config, transport, "tp-sp=nvlink,socket", "--transport");
  set_option(config, transport, "ddp=efa", "--transport");
  EXPECT_EQ(config.transport_of, (std::map<std::string, std::string>{{"ddp", "efa"}}));
  EXPECT_EQ(config.transport, "auto") << "what is not named";
}

// The table's defaults are those of RunConfig, and all texts of values are read back as the same values.
TEST(OptionTable, DefaultsAreThoseOfAConfiguration) {
  RunConfig c;
  for (const RunOption& option : run_option_table()) {
    if (option.set != nullptr) set_option(c, option, option.spec.fallback, "default");
    EXPECT_EQ(option.set == nullptr, option.get == nullptr) << option.spec.name;
    EXPECT_EQ(find_run_option(option.spec.name), &option) << "another one has the same name";
  }
  EXPECT_EQ(c.to_json(), RunConfig().to_json());
  EXPECT_EQ(c.archive, RunConfig().archive);
  EXPECT_EQ(c.overwrite, RunConfig().overwrite);
}

/// A legal value of an option, at random; of options that depend on each other, one that goes with `config`.
std::string drawn(const OptionSpec& spec, const RunConfig& config, std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto one_of = [&](const std::vector<std::string>& texts) { return texts[random() % texts.size()]; };
  const std::string name = spec.name;
  if (name == "strategy") return one_of({"zero2+tp-sp=2", "pipeline=2+ddp", "zero2=*x4", "tp-sp=2x2"});
  if (name == "dataset") return one_of({"tokens", "text=0.7+jsonl@a=0.3"});
  if (name == "transport") return one_of({"nvlink", "socket+" + config.strategies.front().name + "=efa"});
  if (name == "recompute") return one_of({"full", "swiglu,rms_norm"});
  if (name == "recompute-layers") return config.recompute.any() ? one_of({"1-3", "2-2"}) : "";
  if (name == "offload-activations") return one_of({"all", "1-3"});
  if (name == "frozen-weights") return one_of({"nf4:64", "e4m3:32"});
  if (name == "observe") return one_of({"progress", "progress,other"});
  if (name == "price") return one_of({"2.5", "h200=2.5,a100=1.2"});
  if (name == "freeze") return config.freeze.trained.empty() ? one_of({"*norm*", "model.embed_tokens.*,*norm*"}) : "";
  if (name == "optimizer-rules") return one_of({"lm_head*:lr-factor=0.5", "*norm*,*bias:weight-decay=0;*proj*:optimizer=muon"});
  if (name == "train-only") return config.freeze.frozen.empty() ? "*norm*" : "";
  switch (spec.kind) {
    case OptionKind::flag:
      return one_of({"true", "false"});
    case OptionKind::choice:
      return one_of(choices_of(spec));
    case OptionKind::text: {
      const std::vector<std::string> letters{" ",    "\"",   "'", "\\", "#", "=", "[", "]", "\n", "\t",
                                             "\x01", "\x7f", "a", "Z",  "0", ".", ",", "-", "_",  "\u00e9"};
      std::string text;
      for (int i = below(12); i > 0; --i) text += one_of(letters);
      return text;
    }
    default:
      break;
  }
  for (int tries = 0; tries < 200; ++tries) {
    const std::string text = spec.kind == OptionKind::real
                                 ? toml_value(spec, std::to_string(static_cast<double>(below(1'000'000)) / 1e6))
                                 : std::to_string(1 + below(64));
    try {
      return legal_value(spec, text, "drawn");
    } catch (const UsageError&) {
    }
  }
  return spec.fallback;
}

/// The same in JSON, without options of parts.
std::string to_json_file(const RunConfig& config) {
  nlohmann::ordered_json json;
  for (const RunOption& option : run_option_table()) {
    const bool follows = std::string_view(option.spec.name) == "steps" && config.epochs > 0;
    if (option.get != nullptr && !follows) json[option.spec.name] = option.get(config);
  }
  return json.dump();
}

/// All options of the table, those too that archives do not have.
std::string every_option_of(const RunConfig& config) {
  std::string text;
  for (const RunOption& option : run_option_table()) text += std::string(option.spec.name) + " " + text_in(config, option) + "\n";
  return text;
}

// Each row of the table by itself, at a value that is not its default: on the command line, in TOML and in JSON.
TEST_F(PrintedConfig, EachOptionSaysTheSameInEveryPlace) {
  std::mt19937 random(3);
  for (const RunOption& option : run_option_table()) {
    if (option.set == nullptr) continue;
    const std::string name = option.spec.name;
    RunConfig c;
    std::vector<std::string> words;
    const auto set = [&](const std::string& of, const std::string& value) {
      set_option(c, *find_run_option(of), value, of);
      words.push_back("--" + of + (find_run_option(of)->is_switch() ? "" : "=" + value));
    };
    if (name != "model") set("model", "llama-tiny");
    if (name == "recompute-layers") set("recompute", "full");
    if (name.starts_with("checkpoint-") || name == "resume") set("checkpoint", "folder");
    const std::string fallback = text_in(RunConfig(), option);
    std::string value = fallback;
    while (value == fallback || value.empty()) value = legal_value(option.spec, drawn(option.spec, c, random), name);
    set(name, value);
    if (name == "global-batch") {  // else one of these follows from it
      words.push_back("--batch=" + std::to_string(c.batch));
      words.push_back("--accumulation=" + std::to_string(c.accumulation));
    }
    ASSERT_NE(text_in(c, option), fallback) << name;
    const std::string expected = every_option_of(c);
    EXPECT_EQ(every_option_of(make_config(parse_run(words), host())), expected) << name << " on the command line";
    EXPECT_EQ(every_option_of(config_of(file("one.toml", to_toml(c, host())))), expected) << name << " in TOML";
    EXPECT_EQ(every_option_of(config_of(file("one.json", to_json_file(c)))), expected) << name << " in JSON";
  }
}

// All options at once, those of all plugins included.
TEST_F(PrintedConfig, WhatIsPrintedIsReadBackAsTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    RunConfig c;
    for (const RunOption& option : run_option_table()) {
      if (option.set == nullptr || random() % 2 == 0) continue;
      set_option(c, option, drawn(option.spec, c, random), "drawn");
    }
    if (c.model.empty()) c.model = "llama-tiny";
    if (c.epochs > 0) c.steps = RunConfig().steps;  // they follow from the data
    if (c.checkpoint.empty()) c.checkpoint = "folder";
    if (c.global_batch > 0 && random() % 2 == 0) (random() % 2 == 0 ? c.batch : c.global_batch) = 0;
    for (const PluginFile& found : host().files()) {
      if (!found.problem.empty()) continue;
      for (const OptionSpec& spec : host().option_table(found.kind, found.name)) {
        if (random() % 3 == 0) c.plugin_options[found.name][spec.name] = legal_value(spec, drawn(spec, c, random), "drawn");
      }
    }
    const std::string text = to_toml(c, host());
    const RunConfig again = config_of(file("again.toml", text));
    ASSERT_EQ(again.to_json(), c.to_json()) << text;
    ASSERT_EQ(every_option_of(again), every_option_of(c)) << text;
    ASSERT_EQ(to_toml(again, host()), text);
  }
}

TEST_F(PrintedConfig, DefaultsOfAFileAreNotNotedAsWithoutEffect) {
  RunConfig c;
  c.model = "llama-tiny";
  const std::string path = file("run.toml", to_toml(c, host()));
  EXPECT_THAT(config_of(path).notes, ::testing::IsEmpty());
  EXPECT_THAT(config_of(path, {"--checkpoint-keep", "2"}).notes, ElementsAre(HasSubstr("--checkpoint-keep has no effect here")));
}

TEST_F(PrintedConfig, PathsOfPluginsArePrintedToo) {
  RunConfig c;
  c.model = "llama-tiny";
  const std::vector<std::string> paths{"a folder/\"one\"", "two.so"};
  const std::string path = file("run.toml", to_toml(c, host(), paths));
  EXPECT_EQ(plugin_paths(parse_run({"--config", path})), paths);
  EXPECT_THAT(plugin_paths(parse_run({"--config", path, "--plugin", "three"})), ElementsAre("three"));
}

}  // namespace
}  // namespace consist
