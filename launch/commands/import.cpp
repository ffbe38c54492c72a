// consist import: a file of another trainer as a file of Consist's own.
#include <string>
#include <vector>

#include "consist/error.h"
#include "launch/cli/json_output.h"
#include "launch/commands/commands.h"
#include "launch/import/python_reader.h"

namespace consist::commands {
namespace {

constexpr RunOption import_options[] = {
    repeated(valued("set", OptionKind::text, "", "KEY=VALUE", "replaces a value of the file; KEY=null leaves it out")),
    valued("model", OptionKind::text, "", "NAME", "the model, where the file leaves it open: as --model of train"),
    valued("ranks", OptionKind::integer, "", "N", "the number of ranks, where the file leaves it open", "1..65536"),
    valued("output", OptionKind::text, "", "FILE", "file to write; without it standard output"),
    a_switch("overwrite", "replace the output if it exists"),
    a_switch("notes", "say on standard error, too, what became of each key"),
    a_switch("json", "write JSON instead of TOML: options, notes, and each key with its value and effect"),
};

int import(const CommandLine& line) {
  if (line.operands.size() != 1) throw UsageError("name one file of another trainer (see consist import --help)");
  launch::give_back_standard_output();  // --json is for the readers
  become_import(line.arguments);
}

}  // namespace

constinit const Command import_command{
    .name = "import",
    .summary = "write what a file of another trainer states as a file of Consist's own",
    .usage = "FILE [--set KEY=VALUE]... [--model NAME] [--ranks N] [--output run.toml] [--notes] [--json]",
    .about =
        "Reads a set-up of torchtitan, Megatron-LM, Megatron-Bridge, NeMo AutoModel, Primus, Accelerate, Hugging Face's\n"
        "TrainingArguments, Axolotl or DeepSpeed, recognised by its content, and writes it as a TOML for --config. Comments\n"
        "in it say of each key whether it is honoured or without effect, and why. Keys that ask for what is not done here\n"
        "are refused, all at once. --from FILE of train, compare, predict and others reads the same files directly.\n",
    .own = import_options,
    .example = "consist import train_config.toml --ranks 8 --output run.toml\n",
    .operand = "FILE",
    .run = import};

}  // namespace consist::commands
