// Writes a line for each thing that happens in a run, as somebody would write one of his own. Comma-separated values for programs are
// the observer `csv`, which ships with Consist.
#include <consist/error.h>
#include <consist/observer.h>
#include <consist/plugin.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace {

using namespace consist;

class Notes final : public Observer {
 public:
  explicit Notes(const Options& options) : path_(options.text("file")), fails_at_(options.integer("fail-at")) {
    if (path_.empty()) throw UsageError("--notes.file is not given; it names the file to write");
  }

  void begin(const ObservedRun& run) override {
    file_.reset(std::fopen(path_.c_str(), run.first_step > 0 ? "a" : "w"));
    if (!file_) throw SystemError("cannot open " + path_ + ": " + std::strerror(errno));
    if (run.first_step == 0) write("step,loss,grad_norm,learning_rate,seconds,tokens\n");
  }
  void step(const ObservedStep& s) override {
    if (s.step == fails_at_) throw SystemError(path_ + " cannot be written, as --notes.fail-at asks");
    char line[200];
    std::snprintf(line, sizeof line, "%lld,%.9g,%.9g,%.9g,%.6f,%lld\n", static_cast<long long>(s.step), s.loss, s.grad_norm,
                  s.learning_rate, s.seconds, static_cast<long long>(s.tokens));
    write(line);
  }
  void evaluated(const ObservedEvaluation& e) override {
    write("# evaluation after step " + std::to_string(e.step) + ": " + std::to_string(e.loss) + "\n");
  }
  void checkpoint(std::int64_t step, std::string_view folder) override {
    write("# checkpoint of step " + std::to_string(step) + " in " + std::string(folder) + "\n");
  }
  void end(std::string_view status, std::string_view) override { write("# " + std::string(status) + "\n"); }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& text) {
    if (file_ && (std::fputs(text.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0))
      throw SystemError("cannot write " + path_ + ": " + std::strerror(errno));
  }

  std::string path_;
  std::int64_t fails_at_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace

CONSIST_PLUGIN(observer, consist::Observer, Notes, "notes", "1.0.0", "a line for each step, evaluation and checkpoint");
CONSIST_PLUGIN_OPTIONS({"file", consist::OptionKind::text, "", "the file to write", "", "", "", consist::OptionRole::results},
                       {"fail-at", consist::OptionKind::integer, "0", "fail in this step, to see what happens; 0: never"});
