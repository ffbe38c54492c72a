// Tokens that come late or are few, to plant causes of a residual.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "consist/dataset.h"
#include "consist/error.h"
#include "consist/options.h"
#include "consist/plugin.h"

namespace {

class Planted final : public consist::Dataset {
 public:
  explicit Planted(const consist::Options& options) : delay_(options.real("delay")), distinct_(options.integer("distinct")) {
    if (distinct_ < 0) throw consist::UsageError("--planted.distinct must not be negative");
  }

  void open(const consist::DatasetRequest& request) override {
    vocabulary_ = distinct_ > 0 ? std::min(distinct_, request.vocabulary) : request.vocabulary;
  }
  std::int64_t train_sequences() const override { return std::int64_t{1} << 40; }
  std::int64_t eval_sequences() const override { return 0; }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    if (delay_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(delay_));
    auto state = static_cast<std::uint64_t>(index) + 1;
    for (std::int32_t& token : tokens) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      token = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocabulary_));
    }
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { read_train(index, tokens); }
  std::string describe() const override { return "planted: " + std::to_string(vocabulary_) + " tokens"; }

 private:
  double delay_;
  std::int64_t distinct_, vocabulary_ = 1;
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Planted, "planted", "1.0.0", "random tokens that come late or are few, for tests");
CONSIST_PLUGIN_OPTIONS({"delay", consist::OptionKind::real, "0", "seconds before each sequence"},
                       {"distinct", consist::OptionKind::integer, "0", "number of different tokens; 0: all"});
