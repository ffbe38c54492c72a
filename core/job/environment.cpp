#include "core/job/environment.h"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/number.h"

namespace consist {
namespace {

constexpr std::uint16_t default_port = 29500;

/// The variables of one launcher, with errors that name them.
class Variables {
 public:
  Variables(const GetEnvironment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  std::optional<std::string> text(const char* name) const {
    auto value = environment_(name);
    if (value && value->empty()) value.reset();
    return value;
  }

  std::optional<std::int64_t> number(const char* name, std::int64_t least = 0,
                                     std::int64_t most = std::numeric_limits<int>::max()) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::int64_t result = 0;
    if (!parse_number(*value, result) || result < least || result > most) {
      throw UsageError("the environment variable " + std::string(name) + " is '" + *value + "'; it must be a whole number from " +
                       std::to_string(least) + " to " + std::to_string(most));
    }
    return result;
  }

  int required(const char* name, std::int64_t least = 0) const {
    const auto value = number(name, least);
    if (!value) {
      throw UsageError("the environment looks like that of " + launcher_ + ", but " + name +
                       " is not set. Set it, or unset the others to run one rank alone");
    }
    return static_cast<int>(*value);
  }

  std::string required_text(const char* name, const std::string& hint) const {
    auto value = text(name);
    if (!value) throw UsageError("the environment looks like that of " + launcher_ + ", but " + name + " is not set: " + hint);
    return std::move(*value);
  }

 private:
  const GetEnvironment& environment_;
  std::string launcher_;
};

bool speaks_pmix(const Variables& variables) {
  return variables.text("PMIX_NAMESPACE").has_value() && has_pmix();
}

void read_torchrun(const Variables& variables, JobAddress& address) {
  address.rank = variables.required("RANK");
  address.size = variables.required("WORLD_SIZE", 1);
  const auto local_rank = variables.number("LOCAL_RANK");
  const auto local_size = variables.number("LOCAL_WORLD_SIZE", 1);
  if (local_rank.has_value() != local_size.has_value()) {
    throw UsageError(std::string("of LOCAL_RANK and LOCAL_WORLD_SIZE only ") + (local_rank ? "the first" : "the second") +
                     " is set; set both, or neither if every host has one rank");
  }
  address.local_rank = static_cast<int>(local_rank.value_or(0));
  address.local_size = static_cast<int>(local_size.value_or(1));
  if (address.size > 1) address.master_host = variables.required_text("MASTER_ADDR", "the name or address of rank 0's host");
}

void read_openmpi(const Variables& variables, JobAddress& address) {
  address.rank = variables.required("OMPI_COMM_WORLD_RANK");
  address.size = variables.required("OMPI_COMM_WORLD_SIZE", 1);
  address.local_rank = variables.required("OMPI_COMM_WORLD_LOCAL_RANK");
  address.local_size = variables.required("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
  if (address.local_size == address.size) return;
  if (speaks_pmix(variables)) {
    address.master_host.clear();  // rank 0 tells it
  } else {
    address.master_host = variables.required_text("MASTER_ADDR", "pass rank 0's host with mpirun -x MASTER_ADDR=...");
  }
}

void read_kubernetes(const Variables& variables, JobAddress& address) {
  address.rank = variables.required("JOB_COMPLETION_INDEX");
  const auto size = variables.number("WORLD_SIZE", 1);
  if (!size) {
    throw UsageError(
        "the environment looks like that of an indexed Kubernetes job (JOB_COMPLETION_INDEX), but WORLD_SIZE is not set: give "
        "the "
        "container WORLD_SIZE, equal to the job's completions");
  }
  address.size = static_cast<int>(*size);
  if (address.size > 1) {
    address.master_host = variables.required_text(
        "MASTER_ADDR", "give the container the name of the pod with index 0; in a JobSet that is <jobset>-<job>-0-0.<jobset>");
  }
}

void read_slurm(const Variables& variables, JobAddress& address) {
  address.rank = variables.required("SLURM_PROCID");
  // A step may run fewer tasks than the job has.
  const auto step_tasks = variables.number("SLURM_STEP_NUM_TASKS", 1);
  address.size = step_tasks ? static_cast<int>(*step_tasks) : variables.required("SLURM_NTASKS", 1);
  address.local_rank = variables.required("SLURM_LOCALID");
  if (address.size == 1) return;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (const auto nodes = variables.text(name)) {
      address.master_host = first_slurm_host(*nodes);
      break;
    }
    if (std::string_view(name) == "SLURM_NODELIST" && !variables.text("MASTER_ADDR")) {
      throw UsageError(
          "the environment looks like that of Slurm, but neither SLURM_STEP_NODELIST, SLURM_JOB_NODELIST nor MASTER_ADDR is set");
    }
  }
  // Different jobs and steps on one host meet at different ports, below the range from which systems give out free ones.
  const std::int64_t job = variables.number("SLURM_JOB_ID", 0, std::numeric_limits<std::int64_t>::max()).value_or(0);
  const std::int64_t step = variables.number("SLURM_STEP_ID", 0, std::numeric_limits<std::int64_t>::max()).value_or(0);
  address.master_port = static_cast<std::uint16_t>(16384 + (job % 16384 + 977 * (step % 16384)) % 16384);
}

/// Tasks on this node, from Slurm's list per node ("4(x2),3") and this node's position in it.
int slurm_tasks_here(const Variables& variables, const JobAddress& address) {
  std::optional<std::string> list = variables.text("SLURM_STEP_TASKS_PER_NODE");
  if (!list) list = variables.text("SLURM_TASKS_PER_NODE");
  if (!list) return address.size == 1 ? 1 : address.local_rank + 1;
  std::int64_t node = variables.number("SLURM_NODEID").value_or(0);
  std::string_view rest = *list;
  while (!rest.empty()) {
    int tasks = 0;
    int repeat = 1;
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), tasks);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (error == std::errc() && rest.starts_with("(x")) {
      const auto [repeat_end, repeat_error] = std::from_chars(rest.data() + 2, rest.data() + rest.size(), repeat);
      error = repeat_error;
      rest.remove_prefix(static_cast<std::size_t>(repeat_end - rest.data()));
      if (!rest.starts_with(")")) error = std::errc::invalid_argument;
      if (!rest.empty()) rest.remove_prefix(1);
    }
    if (error != std::errc() || tasks < 1 || (!rest.empty() && rest[0] != ',')) {
      throw UsageError("the environment's list of Slurm tasks per node is '" + *list + "', which is not understood");
    }
    if (node < repeat) return tasks;
    node -= repeat;
    if (!rest.empty()) rest.remove_prefix(1);
  }
  return address.local_rank + 1;
}

/// Empty if none is set.
std::string read_token(const Variables& variables) {
  const auto token = variables.text("CONSIST_JOB_TOKEN");
  const auto file = variables.text("CONSIST_JOB_TOKEN_FILE");
  if (token && file) throw UsageError("both CONSIST_JOB_TOKEN and CONSIST_JOB_TOKEN_FILE are set; set one of them");
  if (token) return *token;
  if (!file) return {};
  constexpr std::int64_t most_bytes = 4096;
  try {
    std::string text = read_text(*file, most_bytes);
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return text;
  } catch (const Error& error) {
    throw SystemError(std::string("the job's token (CONSIST_JOB_TOKEN_FILE): ") + error.what());
  }
}

/// Texts that are equal on all ranks of a start, and differ between jobs of a user that run on one host at the same time.
std::string start_of(const Variables& variables, const JobAddress& address) {
  std::string start = address.master_host + ":" + std::to_string(address.master_port) + "/" + std::to_string(address.size);
  for (const char* name : {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    start += "/" + variables.text(name).value_or("");
  return start;
}

/// `by_hand`: the commands that set it.
UsageError token_missing(const std::string& by_hand) {
  return UsageError("the job has ranks on several hosts but no token, without which anybody could join it: " + by_hand +
                    " (or CONSIST_JOB_TOKEN_FILE names a file that holds it)");
}

/// Throws where there is no private channel, with the commands that set the token by hand.
void choose_channel(const Variables& variables, const char* by_hand, JobAddress& address) {
  if (address.local_size == address.size) {
    address.channel = TokenChannel::host;
    address.start = start_of(variables, address);
  } else if (speaks_pmix(variables)) {
    address.channel = TokenChannel::pmix;
  } else {
    throw token_missing(by_hand);
  }
}

void check_consistency(const std::string& launcher, const JobAddress& address) {
  if (address.rank >= address.size) {
    throw UsageError("the environment of " + launcher + " contradicts itself: rank " + std::to_string(address.rank) +
                     " in a job of " + std::to_string(address.size));
  }
  if (address.local_rank >= address.local_size || address.local_size > address.size || address.local_rank > address.rank) {
    throw UsageError("the environment of " + launcher + " contradicts itself: local rank " + std::to_string(address.local_rank) +
                     " of " + std::to_string(address.local_size) + " on this host, but rank " + std::to_string(address.rank) +
                     " of " + std::to_string(address.size) + " in all");
  }
}

}  // namespace

GetEnvironment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

JobAddress job_address_from_environment(const GetEnvironment& environment) {
  JobAddress address;
  std::string launcher;
  const char* by_hand = "";
  const auto is_set = [&](const char* name) { return Variables(environment, "").text(name).has_value(); };
  address.master_port = default_port;
  if (is_set("RANK")) {
    launcher = "torchrun (RANK)";
    by_hand = "run `openssl rand -hex 16` once, and start every host's ranks with CONSIST_JOB_TOKEN=THAT_TEXT torchrun ...";
    read_torchrun(Variables(environment, launcher), address);
  } else if (is_set("OMPI_COMM_WORLD_RANK")) {
    launcher = "OpenMPI (OMPI_COMM_WORLD_RANK)";
    by_hand = "run `export CONSIST_JOB_TOKEN=$(openssl rand -hex 16)`, then mpirun -x CONSIST_JOB_TOKEN ...";
    read_openmpi(Variables(environment, launcher), address);
  } else if (is_set("JOB_COMPLETION_INDEX")) {
    launcher = "an indexed Kubernetes job (JOB_COMPLETION_INDEX)";
    by_hand =
        "run `kubectl create secret generic consist --from-literal=token=$(openssl rand -hex 16)`, and give the container "
        "CONSIST_JOB_TOKEN by secretKeyRef";
    read_kubernetes(Variables(environment, launcher), address);
  } else if (is_set("WORLD_SIZE")) {
    throw UsageError("WORLD_SIZE is set in the environment, but RANK is not. Set both, or neither to run one rank alone");
  } else if (is_set("SLURM_PROCID")) {
    launcher = "Slurm (SLURM_PROCID)";
    by_hand = "run `export CONSIST_JOB_TOKEN=$(openssl rand -hex 16)`, then srun ..., which passes it on";
    const Variables variables(environment, launcher);
    read_slurm(variables, address);
    address.local_size = slurm_tasks_here(variables, address);
  } else {
    return address;
  }
  check_consistency(launcher, address);
  const Variables variables(environment, launcher);
  address.generation = static_cast<int>(variables.number("CONSIST_JOB_GENERATION").value_or(0));
  if (address.size == 1) return address;

  if (const auto host = variables.text("MASTER_ADDR")) address.master_host = *host;
  if (const auto port = variables.number("MASTER_PORT", 1, 65535)) {
    // torchrun's agent itself listens on MASTER_PORT when it says that the workers shall use its store.
    const bool taken = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    address.master_port = static_cast<std::uint16_t>(taken ? (*port < 65535 ? *port + 1 : *port - 1) : *port);
  }
  if (const auto port = variables.number("CONSIST_JOB_PORT", 1, 65535)) address.master_port = static_cast<std::uint16_t>(*port);
  if (address.rank == 0) address.listen_fd = static_cast<int>(variables.number("CONSIST_JOB_FD").value_or(-1));
  address.joined_fd = static_cast<int>(variables.number("CONSIST_JOB_JOINED_FD").value_or(-1));
  address.machine = variables.text("CONSIST_JOB_MACHINE").value_or("");
  address.token = read_token(variables);
  if (address.token.empty() || address.master_host.empty()) choose_channel(variables, by_hand, address);
  return address;
}

std::string job_token(const GetEnvironment& environment) {
  std::string token = read_token(Variables(environment, "consist launch"));
  if (token.empty())
    throw token_missing(
        "run `openssl rand -hex 16` once, and start consist launch on every machine with CONSIST_JOB_TOKEN=THAT_TEXT");
  return token;
}

std::string first_slurm_host(std::string_view nodes) {
  const auto malformed = [&] { return UsageError("the Slurm node list '" + std::string(nodes) + "' is not understood"); };
  std::string host;
  std::size_t i = 0;
  while (i < nodes.size() && nodes[i] != ',') {
    if (nodes[i] != '[') {
      host += nodes[i++];
      continue;
    }
    // The first host of "[07-09,12]" is "07": the digits up to the first of "-,]", zeros included.
    const std::size_t close = nodes.find(']', i);
    const std::size_t end = nodes.find_first_of("-,]", i);
    if (close == std::string_view::npos || end == i + 1) throw malformed();
    const std::string_view first = nodes.substr(i + 1, end - i - 1);
    if (first.find_first_not_of("0123456789") != std::string_view::npos) throw malformed();
    host += first;
    i = close + 1;
  }
  if (host.empty() || host.find(']') != std::string::npos) throw malformed();
  return host;
}

}  // namespace consist
