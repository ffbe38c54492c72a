// The block "optimizer" of a DeepSpeed JSON: Adam and AdamW, Lion, Muon.
#pragma once

#include <set>
#include <string>

#include "launch/import/common/target.h"

namespace consist::deepspeed {

using namespace readers;

/// All members throw UsageError for what is not done here, with the key and its value.
class OptimizerReader {
 public:
  explicit OptimizerReader(Target& target) : target_(target) {}

  /// Reads the type, which decides how the other keys are read. Before them; nothing for a file without the block.
  void begin(const Json& root);
  /// "optimizer.type", or one of "optimizer.params".
  void read(const std::string& key, const Json& value);
  /// When all keys are read: what the block leaves out, and what its keys mean together only. Nothing for a file without it.
  void finish();

 private:
  void read_betas(const std::string& key, const Json& value);
  void read_rate_of_muon(const std::string& key, const Json& value);
  /// Throws if the optimizer of the file has no parameter of that name.
  void require_adam(const std::string& key) const;
  void finish_adam();
  void finish_muon();
  // Options of the optimizer's plugin. A value "auto" keeps the plugin's default, or what the command line gives.
  void read_real(const std::string& key, const Json& value, const std::string& option);
  void keep(const std::string& key, const Json& value, const std::string& option);
  void absent(const std::string& key, const std::string& option, const std::string& fallback);

  Target& target_;
  bool there_ = false, torch_adam_ = false, adam_w_mode_ = true;
  std::string type_;
  std::string plugin_ = "adamw";
  std::set<std::string> kept_;   ///< options of the plugin that are "auto"
  std::set<std::string> rates_;  ///< keys that gave the learning rate
};

}  // namespace consist::deepspeed
