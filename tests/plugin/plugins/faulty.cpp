// A model or a dataset that does what CONSIST_TEST_FAULT says: "<place> <deed>", such as "load abort" or "read_train exit".
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "consist/dataset.h"
#include "consist/model.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

/// Does the deed if this is the place.
void reach(const std::string& place) {
  const char* const fault = std::getenv("CONSIST_TEST_FAULT");
  const std::string asked = fault == nullptr ? "" : fault;
  if (!asked.starts_with(place + " ")) return;
  const std::string deed = asked.substr(place.size() + 1);
  if (deed == "say") std::fprintf(stderr, "%s reached\n", place.c_str());
  if (deed == "exit") std::exit(0);
  if (deed == "_exit") ::_exit(0);
  if (deed == "abort") std::abort();
  if (deed == "crash") *static_cast<volatile int*>(nullptr) = 1;
  if (deed == "crash in a thread") std::thread([] { *static_cast<volatile int*>(nullptr) = 1; }).join();
  if (deed == "divide") ::raise(SIGFPE);
  if (deed == "throw") throw std::out_of_range("a test");
  if (deed == "throw 42") throw 42;
  if (deed == "signals") signal(SIGTERM, [](int) { std::exit(1); });  // as libinfinipath does
  while (deed == "hang") ::pause();
#if defined(__x86_64__)
  if (deed == "flush") __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // as -Ofast's start-up code does
#endif
}

struct OnLoad {
  OnLoad() { reach("load"); }
} on_load;

#ifdef FAULTY_MODEL

class FaultyModel final : public Model {
 public:
  explicit FaultyModel(const Options& /*options*/) { reach("constructor"); }
  /// One of its own, and one that the model plugin llama has as well.
  std::vector<ModelPreset> presets() const override {
    reach("presets");
    return {{"faulty-tiny", "a test"}, {"llama-32m", "a test"}};
  }
  std::unique_ptr<Architecture> from_preset(std::string_view /*name*/) const override { return nullptr; }
  bool accepts(std::string_view architecture) const override { return architecture == "LlamaForCausalLM"; }
  std::unique_ptr<Architecture> from_config(std::string_view /*json*/) const override { return nullptr; }
};

#else

class FaultyData final : public Dataset {
 public:
  explicit FaultyData(const Options& /*options*/) { reach("constructor"); }
  void open(const DatasetRequest& /*request*/) override { reach("open"); }
  std::int64_t train_sequences() const override { return 1000; }
  std::int64_t eval_sequences() const override { return 0; }
  /// The fault comes with the third step of one sequence each.
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>((i + static_cast<std::size_t>(index)) % 7);
    if (index == 2) reach("read_train");
  }
  void read_eval(std::int64_t /*index*/, std::span<std::int32_t> /*tokens*/) const override {}
  std::string describe() const override { return "faulty: a test"; }
};

#endif

}  // namespace

#ifdef FAULTY_MODEL
CONSIST_PLUGIN(model, consist::Model, FaultyModel, "faulty", "1.0.0", "does what CONSIST_TEST_FAULT says");
#else
CONSIST_PLUGIN(dataset, consist::Dataset, FaultyData, "faulty", "1.0.0", "does what CONSIST_TEST_FAULT says");
#endif
CONSIST_PLUGIN_NO_OPTIONS();
