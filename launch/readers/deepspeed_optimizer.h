// The block "optimizer" of a DeepSpeed JSON: Adam and AdamW.
#pragma once

#include <set>
#include <string>

#include "launch/readers/common/target.h"

namespace consist::deepspeed {

using namespace readers;

/// Both members throw UsageError for what is not done here, with the key and its value.
class OptimizerReader {
 public:
  explicit OptimizerReader(Target& target) : target_(target) {}

  /// "optimizer.type", or one of "optimizer.params".
  void read(const std::string& key, const Json& value);
  /// When all keys are read: what the block leaves out, and what its keys mean together only. Nothing for a file without it.
  void finish();

 private:
  void read_betas(const std::string& key, const Json& value);
  // Options of the plugin adamw. A value "auto" keeps the plugin's default, or what the command line gives.
  void read_adam(const std::string& key, const Json& value, const std::string& option);
  void keep_adam(const std::string& key, const Json& value, const std::string& option);
  void absent_adam(const std::string& key, const std::string& option, const std::string& fallback);

  Target& target_;
  bool there_ = false, torch_adam_ = false, adam_w_mode_ = true;
  std::string type_;
  std::set<std::string> kept_;  ///< options of adamw that are "auto"
};

}  // namespace consist::deepspeed
