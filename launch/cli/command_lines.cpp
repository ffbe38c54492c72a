#include "launch/cli/command_lines.h"

#include <algorithm>

#include "launch/cli/command_options.h"
#include "launch/cli/own_options.h"

namespace consist::launch {
namespace {

using enum OptionKind;

constexpr RunOption valued(const char* name, OptionKind kind, const char* fallback, const char* help, const char* value,
                           const char* legal = "") {
  return {.spec = {name, kind, fallback, help, legal}, .value = value};
}
constexpr RunOption a_switch(const char* name, const char* help) {
  return {.spec = {name, flag, "false", help}};
}

constexpr RunOption json = a_switch("json", "for programs");
constexpr RunOption price = valued("price", text, "", "per GPU and hour, or by machine: h200=2.5", "P");
constexpr RunOption plugin = valued("plugin", text, "", "file or folder to look for plugins in, too; repeatable", "PATH");
constexpr RunOption ranks = valued("ranks", integer, "", "ranks to start on this machine", "N", "1..65536");
constexpr RunOption device = valued("device", text, "auto", "auto: the fastest there is", "D");
constexpr RunOption transport = valued("transport", text, "auto", "which carries the bytes", "T");
constexpr RunOption timeout = valued("timeout", integer, "60", "longest wait for another rank", "SECONDS", "1..");

constexpr RunOption of_train_itself[] = {help_option};
constexpr RunOption of_json[] = {help_option, json};
constexpr RunOption of_compare[] = {
    help_option,
    a_switch("predict", "simulate the rows instead of running them"),
    valued("output", text, "runs/compare", "archives, logs and comparison.h5", "FOLDER"),
    a_switch("overwrite", "begin again"),
    valued("repeats", integer, "", "runs of each row", "N", "1..1000"),
    valued("add", text, "", "archives of runs made elsewhere", "FILE"),
    valued("report", text, "", "the page of the comparison", "FILE"),
};
constexpr RunOption of_explain[] = {
    help_option,
    a_switch("summary", "FLOPs, bytes and memory instead of the program"),
    valued("rank", integer, "", "whose program", "R", "0.."),
    valued("print-after", text, "", "the program after this pass; list names them", "PASS"),
    a_switch("pass-times", "what each pass takes"),
};
constexpr RunOption of_tune[] = {
    help_option,
    valued("measure", integer, "3", "configurations that are run", "N", "0.."),
    valued("objective", choice, "tokens", "what the best configuration has", "O", "tokens|memory|cost|energy"),
    valued("search-seconds", integer, "300", "of searching", "S", "1.."),
    valued("fit", choice, "", "what is made as large as fits", "WHAT", "batch|sequence"),
    valued("configurations", integer, "2000", "simulated before the search ends by itself", "N", "1.."),
    a_switch("exhaustive", "every combination of the options"),
    valued("rows", integer, "10", "of the table", "N", "1.."),
};
constexpr RunOption of_show[] = {help_option, json, price};
constexpr RunOption of_watch[] = {
    help_option,
    valued("interval", real, "", "between two looks", "SECONDS", "0.1..86400"),
    valued("wait", real, "", "for an archive that is not there yet, and for the next run in a folder", "SECONDS", "0..1e9"),
    price,
};
constexpr RunOption of_launch[] = {
    help_option,
    valued("nproc", integer, "", "number of ranks", "N", "1.."),
    a_switch("all-output", "show the standard output of all ranks"),
    valued("grace", integer, "60", "after Ctrl-C: time for the ranks to end by themselves", "SECONDS", "1.."),
};
constexpr RunOption of_bench_collectives[] = {
    help_option,
    transport,
    ranks,
    device,
    valued("collectives", text, "", "all_reduce, all_gather, reduce_scatter, broadcast, send_receive", "LIST"),
    valued("min-bytes", bytes, "1Mi", "the smallest size", "B", "1.."),
    valued("max-bytes", bytes, "64Mi", "the largest size", "B", "1.."),
    valued("factor", integer, "2", "from size to size", "N", "2.."),
    valued("dtype", choice, "f32", "of the elements", "TYPE", "f32|bf16"),
    valued("seconds", real, "0.5", "measured per line, about", "S"),
    timeout,
    plugin,
};
constexpr RunOption of_bench_expect[] = {
    help_option,
    valued("collective", choice, "all_reduce", "which one", "C", "all_reduce|all_gather|reduce_scatter"),
    valued("members", text, "", "numbers of members, each with a link", "LIST"),
    valued("bytes", real, "", "of the whole data", "B"),
    valued("machine", text, "", "rates of this machine", "M"),
    valued("transport", text, "auto", "by the machine's links of this transport", "T"),
    valued("bandwidth", real, "", "bytes per second that a member can send", "B"),
    valued("efficiency", real, "0.85", "fraction of the bandwidth that large messages reach", "X", "0..1"),
    valued("latency", real, "20e-6", "seconds of a step", "S", "0.."),
    valued("measured", text, "", "measured algbw per entry of --members", "LIST"),
};
constexpr RunOption of_calibrate[] = {
    help_option,
    valued("output", text, "machine.json", "the machine file to write", "FILE"),
    a_switch("overwrite", "replace a file that is there"),
    ranks,
    device,
    valued("transport", text, "auto", "which carries the bytes; of several each is measured", "LIST"),
    valued("add-links", text, "", "measure the links alone and add them to this machine file", "FILE"),
    valued("models", text, "", "presets: only steps of these are measured", "LIST"),
    valued("seconds", real, "1", "measured per step, about", "S"),
    valued("samples", text, "", "also write the time of every sampled instruction", "FILE"),
    timeout,
    plugin,
};
constexpr RunOption of_tokenize[] = {
    help_option,
    valued("output", text, "", "the file of tokens to write", "FILE"),
    valued("tokenizer", text, "", "a Hugging Face tokenizer.json, or a model's folder with one", "FILE"),
    valued("documents", choice, "file", "what makes a document", "KIND", "file|line"),
    valued("separator", text, "auto", "added token behind each document, auto (end of text) or none", "TOKEN"),
    a_switch("overwrite", "replace a file that is there already"),
};
constexpr RunOption of_plugins[] = {help_option, plugin};
constexpr RunOption of_check[] = {
    help_option,
    valued("option", text, "", "an option of the plugin, without the plugin's name; repeatable", "NAME=VALUE"),
    plugin,
    valued("skip", text, "", "leave out tests of that name", "PATTERN"),
    valued("timeout", integer, "600", "time limit of the suite", "SECONDS", "1.."),
};
constexpr RunOption of_man[] = {
    help_option,
    valued("output", text, "", "write the pages of all commands into it", "FOLDER"),
    a_switch("overwrite", "replace pages that are there"),
};

constexpr RunOption of_report[] = {
    help_option,
    valued("output", text, "report.html", "the page", "FILE"),
    valued("title", text, "", "its title", "TEXT"),
    a_switch("overwrite", "replace a file that is no report, too"),
};

constexpr CommandLine lines[] = {
    {"train", true, of_train_itself},
    {"compare", true, of_compare},
    {"explain", true, of_explain},
    {"predict", true, of_json},
    {"tune", true, of_tune},
    {"advise", true, of_json},
    {"evaluate", true, options_of_evaluate, "", taken_by_evaluate},
    {"generate", true, options_of_generate, "", taken_by_generate},
    {"report", false, of_report, "FILE"},
    {"show", false, of_show, "FILE"},
    {"watch", false, of_watch, "FILE"},
    {"launch", false, of_launch, "COMMAND"},
    {"bench", false, of_train_itself, "collectives|expect"},
    {"bench collectives", false, of_bench_collectives},
    {"bench expect", false, of_bench_expect},
    {"calibrate", false, of_calibrate},
    {"tokenize", false, of_tokenize, "FILE"},
    {"plugins", false, of_plugins, "PLUGIN"},
    {"check", false, of_check, "FILE"},
    {"completion", false, of_train_itself, "bash|zsh|fish"},
    {"man", false, of_man, "COMMAND"},
};

}  // namespace

bool CommandLine::takes(std::string_view option) const {
  return of_train && (taken.empty() || std::find(taken.begin(), taken.end(), option) != taken.end());
}

std::span<const CommandLine> command_lines() {
  return lines;
}

const CommandLine* find_command_line(std::string_view command) {
  const auto* const found =
      std::find_if(std::begin(lines), std::end(lines), [&](const CommandLine& line) { return line.command == command; });
  return found == std::end(lines) ? nullptr : found;
}

}  // namespace consist::launch
