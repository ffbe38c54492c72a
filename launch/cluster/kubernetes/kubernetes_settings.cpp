#include "launch/cluster/kubernetes/kubernetes_settings.h"

#include "launch/cluster/cluster_table.h"

namespace consist::launch {
namespace {

constexpr const char* kubernetes_example =
    "\nA file needs little:\n  [kubernetes]\n  image = \"registry.example/consist:latest\"\n  nodes = 2\n  gpus-per-node = "
    "8\ndocs/clusters.md has all keys";

ClusterTable::Check pairs_of(char separator, const char* example) {
  return [separator, example](const ConfigEntry& entry, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const std::size_t at = text.find(separator);
      if (at == std::string::npos || at == 0 || at + 1 == text.size())
        ClusterTable::refuse(entry, "has '" + text + "'; each is such as \"" + example + "\"");
    }
  };
}

}  // namespace

std::pair<std::string, std::string> cut(const std::string& text, char separator) {
  const std::size_t at = text.find(separator);
  return {text.substr(0, at), text.substr(at + 1)};
}

KubernetesSettings read_kubernetes_settings(const CommandLine& line) {
  KubernetesSettings settings;
  settings.folder = "/consist";
  settings.consist = "consist";
  ClusterTable table("kubernetes", kubernetes_example, settings);
  table.text("image", settings.image);
  table.text("namespace", settings.name_space);
  table.text("zone", settings.zone);
  table.text("memory", settings.memory);
  table.text("shared-memory", settings.shared_memory);
  table.text("working-folder", settings.working_folder);
  table.nodes(settings.gpus_per_node);
  table.number("efa-per-node", "0", "0..1024", settings.efa_per_node);
  table.number("cpus-per-node", "0", "0..4096", settings.cpus_per_node);
  table.texts("resources", settings.resources, pairs_of('=', "rdma/hca=1"));
  table.texts("node-labels", settings.node_labels, pairs_of('=', "node.kubernetes.io/instance-type=p5.48xlarge"));
  table.texts("claims", settings.claims, pairs_of(':', "training-data:/data"));
  table.texts("options", settings.options);
  table.read(line);
  if (settings.image.empty()) table.lacks("image", "the container image in which Consist is (docs/install.md)");
  return settings;
}

}  // namespace consist::launch
