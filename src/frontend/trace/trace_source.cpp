// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_source.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <ios>
#include <istream>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "frontend/trace/archive_source.hpp"
#include "frontend/trace/guarded_read.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {
namespace {

constexpr std::string_view gzip_magic = "\x1f\x8b";
constexpr std::string_view zstd_magic = "\x28\xb5\x2f\xfd";

TraceError unavailable(std::string_view source, const char* call, int code) {
  return TraceUnavailable{.source = ErrorText::copy(source),
                          .call = call,
                          .code = code,
                          .reason = ErrorText::copy(std::generic_category().message(code))};
}

struct CloseFile {
  void operator()(std::FILE* file) const noexcept {
    // Closing a file that was only read loses nothing. Standard input belongs to the program.
    if (file != stdin) {
      static_cast<void>(std::fclose(file));
    }
  }
};

class FileSource final : public TraceSource {
 public:
  FileSource(std::unique_ptr<std::FILE, CloseFile> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    errno = 0;
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file_.get());
    if (count == 0 && std::ferror(file_.get()) != 0) {
      return fail(unavailable(name_, "fread", errno));
    }
    return count;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::string name_;
};

class StreamSource final : public TraceSource {
 public:
  StreamSource(std::istream& stream, std::string name) : stream_(stream), name_(std::move(name)) {}

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    stream_.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    if (stream_.bad()) {
      return fail(TraceError(TraceUnavailable{.source = ErrorText::copy(name_),
                                              .call = "istream::read",
                                              .code = 0,
                                              .reason = "the stream is bad"}));
    }
    return static_cast<std::size_t>(stream_.gcount());
  }

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  std::istream& stream_;
  std::string name_;
};

// What was read to recognise an archive, then the rest.
class PrefixedSource final : public TraceSource {
 public:
  PrefixedSource(std::string begin, std::unique_ptr<TraceSource> inner)
      : begin_(std::move(begin)), inner_(std::move(inner)) {}

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    if (given_ == begin_.size()) {
      return inner_->read(buffer);
    }
    const std::size_t count = begin_.copy(buffer.data(), buffer.size(), given_);
    given_ += count;
    return count;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }

 private:
  std::string begin_;
  std::size_t given_ = 0;
  std::unique_ptr<TraceSource> inner_;
};

Result<std::unique_ptr<TraceSource>, TraceError> recognise(std::unique_ptr<TraceSource> inner) {
  std::string begin(zstd_magic.size(), '\0');
  std::size_t count = 0;
  while (count < begin.size()) {
    MEMSTRATA_TRY(const std::size_t more,
                  detail::guarded_read(*inner, std::span(begin).subspan(count)));
    if (more == 0) {
      break;
    }
    count += more;
  }
  begin.resize(count);
  if (begin.starts_with(gzip_magic)) {
    return detail::make_gzip_source(std::move(inner), std::move(begin));
  }
  if (begin == zstd_magic) {
    return detail::make_zstd_source(std::move(inner), std::move(begin));
  }
  return std::make_unique<PrefixedSource>(std::move(begin), std::move(inner));
}

}  // namespace

Result<std::unique_ptr<TraceSource>, TraceError> decompress(std::unique_ptr<TraceSource> inner) {
  const ErrorText name = ErrorText::copy(inner->name());
  try {
    return recognise(std::move(inner));
  } catch (const std::bad_alloc&) {
    return fail(TraceError(TraceTooLarge{.at = {.source = name, .line = 1, .offset = {}},
                                         .distinct_blocks = 0,
                                         .reason = "there is no memory left"}));
  }
}

Result<std::unique_ptr<TraceSource>, TraceError> open_trace_source(std::string_view path) {
  if (path == "-") {
    return decompress(std::make_unique<FileSource>(std::unique_ptr<std::FILE, CloseFile>(stdin),
                                                   std::string("<stdin>")));
  }
  std::string name(path);
  errno = 0;
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(name.c_str(), "rb"));
  if (file == nullptr) {
    return fail(unavailable(name, "fopen", errno));
  }
  return decompress(std::make_unique<FileSource>(std::move(file), std::move(name)));
}

Result<std::unique_ptr<TraceSource>, TraceError> make_trace_source(std::istream& stream,
                                                                   std::string name) {
  return decompress(std::make_unique<StreamSource>(stream, std::move(name)));
}

}  // namespace memstrata
