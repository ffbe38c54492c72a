// The subcommands of `consist`. Each is a file launch/commands/<name>.cpp; to add one, declare it here and put it into the table.
#pragma once

#include <string>
#include <vector>

namespace consist::commands {

using Arguments = std::vector<std::string>;

/// Each returns the exit status; consist::Error leaves through main.
int train(const Arguments& arguments);
int compare(const Arguments& arguments);
int explain(const Arguments& arguments);
int report(const Arguments& arguments);
int launch(const Arguments& arguments);
int bench_expect(const Arguments& arguments);  ///< `consist bench expect`
int bench(const Arguments& arguments);
int calibrate(const Arguments& arguments);
int predict(const Arguments& arguments);
int tune(const Arguments& arguments);
int advise(const Arguments& arguments);
int show(const Arguments& arguments);
int watch(const Arguments& arguments);
int generate(const Arguments& arguments);
int evaluate(const Arguments& arguments);
int tokenize(const Arguments& arguments);
int plugins(const Arguments& arguments);
int check(const Arguments& arguments);
int completion(const Arguments& arguments);
int complete(const Arguments& arguments);  ///< what the scripts of `completion` ask
int man(const Arguments& arguments);
int probe_plugin(const Arguments& arguments);

/// Throws what `consist train ARGUMENTS` as one of `ranks` ranks would refuse before anything starts: one message now, instead of
/// one from every rank.
void check_train(const Arguments& arguments, int ranks);

struct Command {
  const char* name;
  int (*run)(const Arguments&);
  const char* summary;  ///< null: not shown in --help
};

inline constexpr Command table[] = {
    {"train", train, "train a model"},
    {"compare", compare, "train every combination of the listed values and compare them"},
    {"report", report, "write what archives say as one HTML page: the winner, why, and every curve"},
    {"explain", explain, "print the program of a configuration: collectives, FLOPs, memory; nothing is run"},
    {"evaluate", evaluate, "loss and perplexity of a trained model on a dataset"},
    {"generate", generate, "write text with a trained model"},
    {"predict", predict, "predict a step's time and memory on a machine that need not be present"},
    {"tune", tune, "search for the fastest configuration of a machine"},
    {"advise", advise, "say what would make a configuration faster on a machine; nothing is run"},
    {"show", show, "show a run on one screen: state, speed, memory, curves; also while it goes on"},
    {"watch", watch, "show runs while they go on"},
    {"launch", launch, "run a command as several ranks on this machine"},
    {"bench", bench, "time the collectives of a transport, or estimate what they should reach"},
    {"calibrate", calibrate, "measure this machine and write the file that --machine takes"},
    {"tokenize", tokenize, "turn text into a file of tokens for the dataset `tokens`"},
    {"plugins", plugins, "list the parts that are installed, and their options"},
    {"check", check, "run the conformance tests of a plugin's kind against it"},
    {"completion", completion, "print the script by which bash, zsh or fish completes command lines"},
    {"man", man, "print a command's page for man"},
    {"complete", complete, nullptr},
    {"probe-plugin", probe_plugin, nullptr},
};

}  // namespace consist::commands
