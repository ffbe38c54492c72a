// The model plugins of this tree, loaded from the build folder as `consist` loads them, and programs built from them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/builder.h"
#include "consist/model.h"
#include "core/plugin/host.h"

namespace consist::test {

inline std::shared_ptr<Model> family(const std::string& name, const std::map<std::string, std::string>& options = {}) {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host.make<Model>("model", name, options);
}

/// Forward and loss of one micro-batch on one rank.
struct BuiltModel {
  explicit BuiltModel(const Architecture& architecture, std::int64_t batch = 2, std::int64_t sequence = 8,
                      double loss_scale = 0.25) {
    Builder builder(program);
    ids = builder.input("ids", DType::i32, {batch, sequence});
    const TensorId targets = builder.input("targets", DType::i32, {batch, sequence});
    program.loss = architecture.build(builder, ids, targets, loss_scale);
  }

  const Parameter* find(const std::string& name) const {
    for (const Parameter& p : program.parameters) {
      if (p.name == name) return &p;
    }
    return nullptr;
  }
  std::string shape(const std::string& name) const {
    const Parameter* p = find(name);
    return p == nullptr ? "absent" : program[p->tensor].shape.text();
  }

  Program program;
  TensorId ids = no_tensor;
};

}  // namespace consist::test
