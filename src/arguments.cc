#include "src/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "engine/config/known_keys.h"
#include "src/messages.h"

namespace marea {
namespace {

// Rewrites a command's words so that CLI11 finds "--name=value" for every flag.
class Normaliser {
 public:
  Normaliser(CLI::App& app, const std::vector<std::string>& words) : app_(app), words_(words) {}

  Status Run() {
    while (next_ < words_.size() && !help_) {
      const std::string& word = words_[next_++];
      const bool is_flag = word.size() > 1 && word[0] == '-';
      MAREA_RETURN_IF_ERROR(is_flag ? Flag(word) : Positional(word));
    }
    return Status::Ok();
  }

  bool help() const { return help_; }
  std::vector<std::string> Take() { return std::move(normal_); }

 private:
  Status Flag(const std::string& word) {
    if (word == "-h" || word == "--help") {
      help_ = true;
      return Status::Ok();
    }
    const size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    CLI::Option* option = app_.get_option_no_throw(name);
    if (option == nullptr || name.rfind("--", 0) != 0) return Unknown(word.substr(0, equals));
    const bool takes_value = option->get_items_expected_max() > 0;
    if (++given_[option] > 1 && option->get_items_expected_max() <= 1) {
      return Status::InvalidArgument(fmt::format("{} is given twice: give it once", name));
    }
    if (!takes_value) {
      if (equals != std::string::npos) {
        return Status::InvalidArgument(fmt::format(
            "{} takes no value: write {} alone, or leave it out", word.substr(0, equals), name));
      }
      normal_.push_back(name);
      return Status::Ok();
    }
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (next_ < words_.size() && words_[next_].rfind("--", 0) != 0) {
      value = words_[next_++];
    }
    if (value.empty()) {
      return Status::InvalidArgument(
          fmt::format("{} needs a value: {} {}", name, name, option->get_type_name()));
    }
    normal_.push_back(name + "=" + value);
    return Status::Ok();
  }

  Status Unknown(const std::string& name) const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) {
      for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
    }
    std::string dashed = name;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    return Status::InvalidArgument(
        fmt::format("{} has no flag {}; the nearest is {} (`{} --help` lists them)",
                    app_.get_name(), name, NearestName(dashed, names), app_.get_name()));
  }

  Status Positional(const std::string& word) {
    const auto options =
        app_.get_options([](const CLI::Option* option) { return option->get_positional(); });
    if (positional_count_ >= options.size()) {
      return Status::InvalidArgument(fmt::format("{} does not take the argument '{}'{}",
                                                 app_.get_name(), word,
                                                 options.empty() ? ": flags begin with --" : ""));
    }
    ++positional_count_;
    normal_.push_back(word);
    return Status::Ok();
  }

  CLI::App& app_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
  size_t positional_count_ = 0;
  bool help_ = false;
  std::map<const CLI::Option*, int> given_;
  std::vector<std::string> normal_;
};

}  // namespace

struct FlagSet::Impl {
  CLI::App app;
};

FlagSet::FlagSet(const std::string& command, const std::string& purpose)
    : impl_(new Impl{CLI::App(purpose, command)}) {}

FlagSet::~FlagSet() = default;

void FlagSet::Text(const char* names, std::string& target, const char* type, const char* what) {
  impl_->app.add_option(names, target, what)->type_name(type);
}

void FlagSet::Texts(const char* names, std::vector<std::string>& target, const char* type,
                    const char* what) {
  impl_->app.add_option(names, target, what)->type_name(type);
}

void FlagSet::Switch(const char* names, bool& target, const char* what) {
  impl_->app.add_flag(names, target, what);
}

void FlagSet::Positional(const char* name, std::string& target, const char* type,
                         const char* what) {
  impl_->app.add_option(name, target, what)->type_name(type);
}

void FlagSet::Footer(const std::string& text) {
  impl_->app.footer(text);
}

Result<ParseOutcome> FlagSet::Parse(const std::vector<std::string>& arguments) {
  Normaliser normaliser(impl_->app, arguments);
  MAREA_RETURN_IF_ERROR(normaliser.Run());
  if (normaliser.help()) return ParseOutcome::kHelp;
  std::vector<std::string> words = normaliser.Take();
  std::reverse(words.begin(), words.end());  // CLI11 takes the first word from the back
  try {
    impl_->app.parse(words);
  } catch (const CLI::ParseError& error) {
    return Status::InvalidArgument(error.what());
  }
  return ParseOutcome::kRun;
}

std::optional<int> FlagSet::ParseOrEnd(const std::vector<std::string>& arguments) {
  const Result<ParseOutcome> outcome = Parse(arguments);
  if (!outcome.ok()) return FailWith(outcome.status());
  if (outcome.value() == ParseOutcome::kRun) return std::nullopt;
  fmt::print("{}", impl_->app.help());
  return 0;
}

std::string NearestName(std::string_view name, const std::vector<std::string>& names) {
  MAREA_CHECK(!names.empty(), "there is nothing to be near to");
  return *std::min_element(names.begin(), names.end(),
                           [&](const std::string& a, const std::string& b) {
                             return EditDistance(name, a) < EditDistance(name, b);
                           });
}

}  // namespace marea
