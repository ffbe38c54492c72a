// consist generate: text from a trained model.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"
#include "core/config/option_value.h"
#include "core/job/job.h"
#include "core/plan/plan.h"
#include "core/state/loaded_weights.h"
#include "core/training/generator.h"
#include "core/training/sampler.h"
#include "core/training/session.h"
#include "datasets/tokenizer/text_stream.h"
#include "launch/cli/run_options.h"
#include "launch/commands/commands.h"
#include "launch/generate/model_text.h"
#include "launch/generate/trained_model.h"

namespace consist::commands {
namespace {

using Clock = std::chrono::steady_clock;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t prompt_most_bytes = 64 << 20;

using enum OptionKind;

constexpr RunOption generate_options[] = {
    valued("tokenizer", text, "", "FILE", "a tokenizer.json, or a folder with one; else the model's, or that of the run"),
    valued("prompt", text, "", "TEXT", "the text to go on from"),
    valued("prompt-file", text, "", "FILE", "the same from a file, - is standard input; a newline at its end is left out"),
    valued("prompt-ids", text, "", "IDS", "the same as tokens: 1,15,7; without a tokenizer tokens are written, too"),
    a_switch("chat", "the prompt is what a user says: the chat template of the run's dataset, or beside the tokenizer"),
    valued("max-tokens", integer, "256", "N", "tokens to write at most", "1..1000000000"),
    valued("temperature", real, "1", "X", "logits are divided by it; 0: always the most probable token", "0..1000"),
    valued("top-k", integer, "0", "N", "only the so many most probable tokens; 0: all", "0..1000000000"),
    valued("top-p", real, "1", "X", "only the most probable tokens that reach this probability together, at least one", "0..1"),
    a_switch("ignore-eos", "do not stop at the token that ends a text"),
    valued("json", text, "", "FILE", "tokens, text and times as a file; --overwrite replaces one"),
};
constexpr TakenOption generate_takes[] = {
    {"model", "a Hugging Face folder; with --checkpoint the preset or folder that was trained"},
    {"checkpoint", "a run's checkpoints, of which the newest counts"},
    {"adapter", "with its options; with --checkpoint that of the run"},
    {"frozen-weights", "how the weights beside the adapter lie in memory"},
    {"optimizer", "whose passes and states are read beside the weights, if it has any"},
    {"optimizer-rules", "of the run"},
    {"seed", "of the choice of tokens: the same seed writes the same text"},
    {"precision"},
    {"device"},
    {"memory-limit"},
    {"plugin"},
    {"overwrite"},
};

std::string text_of_file(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.resize(static_cast<std::size_t>(prompt_most_bytes) + 1);
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::cin.gcount()));
    if (static_cast<std::int64_t>(text.size()) > prompt_most_bytes)
      throw UsageError("the prompt on standard input has more than the " + std::to_string(prompt_most_bytes) +
                       " bytes that a prompt may have");
  } else {
    text = read_text(path, prompt_most_bytes);
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Tokens parse_ids(const std::string& text) {
  Tokens ids;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    char* rest = nullptr;
    const long long id = std::strtoll(word.c_str(), &rest, 10);
    if (word.empty() || *rest != '\0' || id < 0 || id > INT32_MAX)
      throw UsageError("--prompt-ids has '" + word + "'; it must be tokens with commas between them: 1,15,7");
    ids.push_back(static_cast<std::int32_t>(id));
    at = end + 1;
  }
  return ids;
}

/// The request that the command line states.
struct GenerateRequest {
  std::optional<launch::ModelText> text;  ///< none: tokens in, tokens out
  Tokens prompt, ends;
  std::int64_t max_tokens;
  SamplerSettings sampling;
  Output json;
};

GenerateRequest request_of(const ParsedRun& parsed, const RunConfig& config, const Parts& parts, PluginHost& host) {
  const int prompts = parsed.has("prompt") + parsed.has("prompt-file") + parsed.has("prompt-ids");
  if (prompts != 1)
    throw UsageError(std::string(prompts == 0 ? "no prompt is given" : "several prompts are given") +
                     ": give one of --prompt TEXT, --prompt-file FILE and --prompt-ids IDS");
  GenerateRequest request{.text = std::nullopt,
                          .prompt = {},
                          .ends = {},
                          .max_tokens = parsed.integer("max-tokens"),
                          .sampling = {.temperature = parsed.real("temperature"),
                                       .top_k = parsed.integer("top-k"),
                                       .top_p = parsed.real("top-p"),
                                       .seed = config.seed},
                          .json = {"--json", parsed.text("json"), config.overwrite}};
  const bool of_ids = parsed.has("prompt-ids");
  if (of_ids && parsed.flag("chat")) throw UsageError("--chat goes with a prompt that is a text, not with --prompt-ids");
  std::shared_ptr<Dataset> trained_on;
  if (!of_ids || parsed.has("tokenizer")) {
    trained_on = launch::dataset_of_checkpoint(config, parts, host);
    request.text = launch::find_model_text(config, parts, trained_on.get(), parsed.text("tokenizer"));
  }
  if (of_ids) {
    request.prompt = parse_ids(parsed.text("prompt-ids"));
  } else {
    const std::string text = parsed.has("prompt") ? parsed.text("prompt") : text_of_file(parsed.text("prompt-file"));
    request.prompt =
        parsed.flag("chat") ? launch::chat_prompt(*request.text, trained_on.get(), text) : request.text->tokenizer->encode(text);
    if (request.prompt.empty())
      throw UsageError("the prompt is empty, and the tokenizer " + request.text->file +
                       " puts no token in front of a text; give at least a word");
  }
  if (!parsed.flag("ignore-eos")) request.ends = request.text ? request.text->ends : launch::ends_of(parts);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t positions = parts.architecture->sizes().max_sequence;
  if (positions > 0 && prompt + request.max_tokens > positions) {
    const std::string left = prompt < positions ? "; use --max-tokens " + std::to_string(positions - prompt) + " or less" : "";
    throw UsageError("the prompt has " + std::to_string(prompt) + " tokens and --max-tokens is " +
                     std::to_string(request.max_tokens) + ", together more than the model's " + std::to_string(positions) +
                     " positions" + left);
  }
  return request;
}

/// Prints as characters become whole.
class TextPrinter {
 public:
  explicit TextPrinter(const GenerateRequest& request) {
    if (request.text) stream_.emplace(*request.text->tokenizer);
  }
  void token(std::int32_t id) { print(stream_ ? stream_->push(id) : (text_.empty() ? "" : " ") + std::to_string(id)); }
  void finish() {
    if (stream_) print(stream_->finish());
    std::fputs("\n", stdout);
    std::fflush(stdout);
  }
  const std::string& text() const { return text_; }

 private:
  /// Prints `text`, which a model wrote and which must not act on a terminal.
  void print(const std::string& text) {
    if (text.empty()) return;
    text_ += text;
    std::fputs(to_terminal_ ? printable(text).c_str() : text.c_str(), stdout);
    std::fflush(stdout);
  }

  std::optional<tokenizer::TextStream> stream_;
  const bool to_terminal_ = isatty(STDOUT_FILENO) != 0;
  std::string text_;
};

struct Written {
  Tokens tokens;
  bool ended = false;  ///< by a token that ends a text
  double prompt_seconds = 0, seconds = 0;
};

Written write(const GenerateRequest& request, Generator& generator, TextPrinter& output) {
  Sampler sampler(request.sampling);
  Written written;
  const Clock::time_point begin = Clock::now();
  std::span<const float> logits = generator.read(request.prompt);
  const Clock::time_point read = Clock::now();
  written.prompt_seconds = std::chrono::duration<double>(read - begin).count();
  while (true) {
    const std::int32_t token = sampler.next(logits);
    written.tokens.push_back(token);
    written.ended = std::find(request.ends.begin(), request.ends.end(), token) != request.ends.end();
    output.token(token);
    if (written.ended || static_cast<std::int64_t>(written.tokens.size()) == request.max_tokens) break;
    logits = generator.read({&token, 1});
  }
  written.seconds = std::chrono::duration<double>(Clock::now() - read).count();
  output.finish();
  return written;
}

void write_json(const GenerateRequest& request, const Written& written, const std::string& text, const std::string& weights) {
  if (request.json.path.empty()) return;
  nlohmann::ordered_json json{{"weights", weights},     {"prompt_tokens", request.prompt},          {"tokens", written.tokens},
                              {"ended", written.ended}, {"prompt_seconds", written.prompt_seconds}, {"seconds", written.seconds}};
  if (request.text) json["text"] = text;
  write_output(request.json, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

int generate_with(const ParsedRun& parsed, PluginHost& host, RunConfig config) {
  SelectedParts selected = select_parts(std::move(config), host);
  require_trained_weights(selected.config, selected.parts);
  const GenerateRequest request = request_of(parsed, selected.config, selected.parts, host);
  const Sampler checked(request.sampling);  // before weights are read
  if (!request.json.path.empty()) check_output(request.json);
  const Plan planned(std::move(selected), host);
  const std::unique_ptr<JoinedJob> job = join_job({});
  Session session(planned, *job);
  const Plan& plan = session.plan();
  for (const auto& notes : {planned.config().notes, session.device_notes()}) {
    for (const std::string& note : notes) std::fprintf(stderr, "%s\n", printable(note).c_str());
  }
  const std::int64_t most = static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
  session.prepare(text_programs(plan, room_for(most, plan.parts().architecture->sizes().max_sequence)));
  TrainingState& state = session.state();
  state.allocate(false);
  const std::string weights = load_trained_weights(state, plan.config(), plan.parts(), *job).text;
  std::fprintf(stderr, "%s\n", printable("weights of " + weights + ", " + session.device().info().name).c_str());
  Generator generator(state);
  TextPrinter output(request);
  const Written written = write(request, generator, output);
  const auto next = static_cast<double>(written.tokens.size() - 1);
  std::fprintf(stderr, "prompt of %zu tokens in %.3f s; %zu tokens%s, %.1f per second\n", request.prompt.size(),
               written.prompt_seconds, written.tokens.size(), written.ended ? ", the last ends the text" : "",
               written.seconds > 0 ? next / written.seconds : 0.0);
  write_json(request, written, output.text(), weights);
  job->leave(job->timeout());
  return 0;
}

int generate(const CommandLine& line) {
  ParsedRun parsed = parse_run(line);
  launch::add_options_of_checkpoint(parsed);
  PluginHost host(plugin_paths(parsed));
  say_plugin_warnings(host);
  return generate_with(parsed, host, make_config(parsed, host));
}

}  // namespace

constinit const Command generate_command{
    .name = "generate",
    .summary = "write text with a trained model",
    .usage = "--model FOLDER|--checkpoint FOLDER --prompt TEXT [OPTIONS]",
    .about =
        "Writes text that goes on from a prompt, token by token as it comes, on one rank. Keys and values of what was read are\n"
        "kept (docs/generate.md). Weights are those of a Hugging Face folder (an export is one), or of a run's newest "
        "checkpoint,\n"
        "whose model, optimizer and precision are then taken unless they are given.\n",
    .own = generate_options,
    .notes = "Options of parts, such as --cpu.threads: consist plugins NAME.\n",
    .example = "consist generate --checkpoint runs/a --prompt \"Once upon a time\" --temperature 0.8 --top-p 0.95\n",
    .takes = Takes::named,
    .taken = generate_takes,
    .run = generate};

}  // namespace consist::commands
