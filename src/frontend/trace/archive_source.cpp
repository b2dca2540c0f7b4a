// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/archive_source.hpp"

#include <zconf.h>
#include <zlib.h>
#include <zstd.h>

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata::detail {
namespace {

constexpr std::size_t input_bytes = std::size_t{64} * 1024;

// The compressed bytes that wait to be unpacked; begins with those that were read to recognise the archive.
class PackedInput {
 public:
  PackedInput(std::unique_ptr<TraceSource> inner, std::string begin)
      : inner_(std::move(inner)), buffer_(begin.begin(), begin.end()), end_(buffer_.size()) {}

  [[nodiscard]] std::string_view name() const noexcept { return inner_->name(); }

  [[nodiscard]] std::span<char> waiting() noexcept {
    return std::span(buffer_).subspan(begin_, end_ - begin_);
  }

  void consume(std::size_t count) noexcept { begin_ += count; }

  // Makes sure that bytes wait; false at the end of the archive file.
  [[nodiscard]] Result<bool, TraceError> refill() {
    if (begin_ < end_) {
      return true;
    }
    buffer_.resize(input_bytes);
    begin_ = 0;
    end_ = 0;
    MEMSTRATA_TRY(end_, inner_->read(buffer_));
    return end_ > 0;
  }

 private:
  std::unique_ptr<TraceSource> inner_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_;
};

// What both kinds of archive share: errors, and the count of text that came out.
class ArchiveSource : public TraceSource {
 public:
  [[nodiscard]] std::string_view name() const noexcept final { return input_.name(); }

 protected:
  ArchiveSource(std::unique_ptr<TraceSource> inner, std::string begin, const char* codec)
      : input_(std::move(inner), std::move(begin)), codec_(codec) {}

  [[nodiscard]] PackedInput& input() noexcept { return input_; }

  void count_text(std::size_t bytes) noexcept { text_ += Bytes{bytes}; }

  [[nodiscard]] TraceError broken(ErrorText reason) const {
    return BrokenTraceArchive{.source = ErrorText::copy(name()),
                              .codec = codec_,
                              .offset = text_,
                              .reason = std::move(reason)};
  }

 private:
  PackedInput input_;
  const char* codec_;
  Bytes text_;
};

class GzipSource final : public ArchiveSource {
 public:
  GzipSource(std::unique_ptr<TraceSource> inner, std::string begin)
      : ArchiveSource(std::move(inner), std::move(begin), "gzip") {
    constexpr int gzip_only = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, gzip_only) != Z_OK) {
      throw std::bad_alloc();
    }
  }

  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  GzipSource(GzipSource&&) = delete;
  GzipSource& operator=(GzipSource&&) = delete;

  ~GzipSource() override { inflateEnd(&stream_); }

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override;

 private:
  z_stream stream_{};
  bool is_between_members_ = false;
};

Result<std::size_t, TraceError> GzipSource::read(std::span<char> buffer) {
  while (true) {
    MEMSTRATA_TRY(const bool has_input, input().refill());
    if (!has_input) {
      if (is_between_members_) {
        return 0;
      }
      return fail(broken("it is cut short"));
    }
    if (is_between_members_) {
      inflateReset(&stream_);
      is_between_members_ = false;
    }
    const std::span<char> waiting = input().waiting();
    // zlib reads through a pointer to bytes that are not const, and counts in unsigned int.
    stream_.next_in = reinterpret_cast<Bytef*>(waiting.data());
    stream_.avail_in = static_cast<uInt>(waiting.size());
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream_.avail_out = static_cast<uInt>(buffer.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    input().consume(waiting.size() - stream_.avail_in);
    const std::size_t unpacked = buffer.size() - stream_.avail_out;
    count_text(unpacked);
    if (code == Z_MEM_ERROR) {
      throw std::bad_alloc();
    }
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      return fail(broken(stream_.msg == nullptr ? ErrorText("zlib refused it")
                                                : ErrorText::copy(stream_.msg)));
    }
    is_between_members_ = code == Z_STREAM_END;
    if (unpacked > 0) {
      return unpacked;
    }
  }
}

struct FreeZstd {
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

class ZstdSource final : public ArchiveSource {
 public:
  ZstdSource(std::unique_ptr<TraceSource> inner, std::string begin)
      : ArchiveSource(std::move(inner), std::move(begin), "zstd"), context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) {
      throw std::bad_alloc();
    }
  }

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override;

 private:
  std::unique_ptr<ZSTD_DCtx, FreeZstd> context_;
  bool is_between_frames_ = false;
  bool has_more_text_ = false;
};

Result<std::size_t, TraceError> ZstdSource::read(std::span<char> buffer) {
  while (true) {
    MEMSTRATA_TRY(const bool has_input, input().refill());
    if (!has_input && !has_more_text_) {
      if (is_between_frames_) {
        return 0;
      }
      return fail(broken("it is cut short"));
    }
    const std::span<char> waiting = has_input ? input().waiting() : std::span<char>();
    ZSTD_inBuffer in{.src = waiting.data(), .size = waiting.size(), .pos = 0};
    ZSTD_outBuffer out{.dst = buffer.data(), .size = buffer.size(), .pos = 0};
    const std::size_t code = ZSTD_decompressStream(context_.get(), &out, &in);
    input().consume(in.pos);
    count_text(out.pos);
    if (ZSTD_isError(code) != 0) {
      return fail(broken(ErrorText::copy(ZSTD_getErrorName(code))));
    }
    is_between_frames_ = code == 0;
    has_more_text_ = code != 0 && out.pos == out.size;
    if (out.pos > 0) {
      return out.pos;
    }
  }
}

}  // namespace

Result<std::unique_ptr<TraceSource>, TraceError> make_gzip_source(
    std::unique_ptr<TraceSource> inner,
    std::string begin) {
  return std::make_unique<GzipSource>(std::move(inner), std::move(begin));
}

Result<std::unique_ptr<TraceSource>, TraceError> make_zstd_source(
    std::unique_ptr<TraceSource> inner,
    std::string begin) {
  return std::make_unique<ZstdSource>(std::move(inner), std::move(begin));
}

}  // namespace memstrata::detail
