// consist explain: the program of a make-up, without running it.
#include <cstdio>
#include <map>

#include "consist/error.h"
#include "core/program/printer.h"
#include "core/runtime/parts.h"
#include "core/runtime/program_summary.h"
#include "core/runtime/text.h"
#include "launch/commands/commands.h"
#include "launch/run_options.h"

namespace consist::commands {
namespace {

namespace po = boost::program_options;

constexpr const char* head =
    "usage: consist explain --model NAME [OPTIONS of train]\n\n"
    "Prints the program that a rank of this make-up executes in one step: every instruction, its tensors and\n"
    "placements, its queue, what it waits for and which pass put it there. Nothing is run.\n\n";
constexpr const char* tail =
    "\nOf the options of train, the make-up, the batch, --sequence and --accumulation matter here.\n\n"
    "example: consist explain --model llama-3-8b --strategy ddp --ranks 8 --precision bf16 --summary\n";

}  // namespace

int explain(const Arguments& arguments) {
  po::options_description own("Explain");
  own.add_options()("help", "this text")("summary", po::bool_switch(),
                                         "FLOPs, bytes per collective and axis, memory by role and at the peak");
  const ParsedRun parsed = parse_run(arguments, own);
  if (parsed.values.count("help") != 0) {
    std::fputs(head, stdout);
    std::printf("  --summary   FLOPs, bytes per collective and axis, memory by role and at the peak\n");
    std::fputs(tail, stdout);
    return 0;
  }
  PluginHost host(plugin_paths(parsed.values));
  RunConfig config = make_config(parsed, host);
  for (const std::string& note : config.notes) std::fprintf(stderr, "%s\n", note.c_str());
  Parts parts = make_parts(config, host);
  const Layout layout = lay_out(parts.uses, config.ranks);
  settle_batch(config, layout);
  const CompileRequest request = parts.compile_request(config);
  add_device(parts, config, host);
  parts.device->open(0, 1);
  PreparedProgram program(compile_step(request, layout), *parts.device, {});
  program.plan();
  if (parsed.values["summary"].as<bool>()) {
    std::fputs(summary_text(summarize(program)).c_str(), stdout);
  } else {
    std::fputs(to_text(program.program()).c_str(), stdout);
  }
  return 0;
}

}  // namespace consist::commands
