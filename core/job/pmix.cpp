// Agreement by PMIx. Of its interface (pmix-standard.org, versions 3 to 5, whose library is libpmix.so.2) only what is called
// here is declared: the library is loaded where a launcher has it.
#include <dlfcn.h>

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "consist/error.h"
#include "consist/handshake.h"
#include "core/job/agreed_token.h"

namespace consist {
namespace {

constexpr const char* key = "consist.job";
constexpr std::uint8_t to_all = 3;        // PMIX_GLOBAL
constexpr std::uint16_t type_string = 3;  // PMIX_STRING

struct Process {
  char name_space[256];
  std::uint32_t rank;
};
struct Value {
  std::uint16_t type;
  union {
    char* string;
    std::uint64_t largest[8];  // the standard's union has other members, none of them larger
  } data;
};

struct Library {
  int (*init)(Process* self, void* infos, std::size_t count) = nullptr;
  int (*put)(std::uint8_t scope, const char* key, Value* value) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Process* processes, std::size_t count, const void* infos, std::size_t info_count) = nullptr;
  int (*get)(const Process* process, const char* key, const void* infos, std::size_t count, Value** value) = nullptr;
  int (*finalize)(const void* infos, std::size_t count) = nullptr;
  const char* (*text_of)(int status) = nullptr;
  bool complete = false;
};

const Library& library() {
  static const Library loaded = [] {
    Library functions;
    void* const handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) return functions;
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      return function != nullptr;
    };
    functions.complete = find("PMIx_Init", functions.init) && find("PMIx_Put", functions.put) &&
                         find("PMIx_Commit", functions.commit) && find("PMIx_Fence", functions.fence) &&
                         find("PMIx_Get", functions.get) && find("PMIx_Finalize", functions.finalize) &&
                         find("PMIx_Error_string", functions.text_of);
    return functions;
  }();
  return loaded;
}

void check(int status, const char* what) {
  if (status == 0) return;
  throw SystemError(std::string("the job's ranks cannot agree on a token by the launcher's PMIx: ") + what + ": " +
                    library().text_of(status) +
                    ". Set CONSIST_JOB_TOKEN=$(openssl rand -hex 16), and pass it on (mpirun -x "
                    "CONSIST_JOB_TOKEN)");
}

/// "TOKEN HOST", from rank 0 to all.
std::string exchange() {
  const Library& pmix = library();
  Process self{};
  check(pmix.init(&self, nullptr, 0), "PMIx_Init");
  if (self.rank == 0) {
    std::string text = new_token() + " " + network::host_name();
    Value value{type_string, {text.data()}};
    check(pmix.put(to_all, key, &value), "PMIx_Put");
    check(pmix.commit(), "PMIx_Commit");
  }
  check(pmix.fence(nullptr, 0, nullptr, 0), "PMIx_Fence");
  Process first = self;
  first.rank = 0;
  Value* found = nullptr;
  check(pmix.get(&first, key, nullptr, 0, &found), "PMIx_Get");
  const bool is_text = found != nullptr && found->type == type_string && found->data.string != nullptr;
  std::string text = is_text ? found->data.string : "";
  if (is_text) free(found->data.string);  // as PMIX_VALUE_RELEASE does
  free(found);
  check(pmix.finalize(nullptr, 0), "PMIx_Finalize");
  return text;
}

/// The findings of the thread that asks.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  bool there = false;
  std::string text;
  std::exception_ptr problem;
};

}  // namespace

bool has_pmix() {
  return library().complete;
}

Agreed agree_by_pmix(std::chrono::milliseconds timeout) {
  // Its calls know no timeout that every launcher keeps. A thread that is left behind ends with the process.
  const auto answer = std::make_shared<Answer>();
  std::thread([answer] {
    std::string text;
    std::exception_ptr problem;
    try {
      text = exchange();
    } catch (...) {
      problem = std::current_exception();
    }
    const std::lock_guard lock(answer->mutex);
    answer->there = true;
    answer->text = std::move(text);
    answer->problem = problem;
    answer->changed.notify_one();
  }).detach();
  std::unique_lock lock(answer->mutex);
  if (!answer->changed.wait_for(lock, timeout, [&] { return answer->there; })) {
    throw SystemError("the launcher's PMIx did not bring the ranks together within " + std::to_string(timeout.count() / 1000) +
                      " s: do all of them run consist?");
  }
  if (answer->problem) std::rethrow_exception(answer->problem);
  const std::size_t space = answer->text.find(' ');
  if (space == std::string::npos) throw SystemError("rank 0 told the others no token by the launcher's PMIx");
  return {answer->text.substr(0, space), answer->text.substr(space + 1)};
}

}  // namespace consist
