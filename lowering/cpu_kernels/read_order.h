// Which memory loops read one after the other, so that threads that wait can ask for it.

#ifndef GRAPHGEN_READ_ORDER_H_
#define GRAPHGEN_READ_ORDER_H_

#include <atomic>
#include <cstdint>

namespace graphgen {

// Memory of which each thread of a loop reads a part: of each of some pieces of one size as much as
// others do, the first thread the beginning.
struct Stretch {
  const void* data = nullptr;
  int64_t bytes = 0;
  int64_t pieces = 1;
};

// What a loop reads that is too much for the caches to keep until it comes again. The first stretch
// names it.
struct Reads {
  static constexpr int kStretches = 3;
  Stretch stretches[kStretches];
};

// Reads of loops and what came after them: a model is read in one order, step by step. One thread
// notes them, others use them meanwhile. What they find may be of two loops, or memory that is gone:
// addresses are only asked for, never read.
class ReadOrder {
 public:
  static constexpr int64_t kLine = 64, kChunk = 2048;

  class Record {
   public:
    // What was read next the last time; null if that is unknown.
    const Record* next() const { return next_.load(std::memory_order_relaxed); }

    // Parts in which a member of a loop asks for what it will read.
    int64_t chunks(int64_t members) const { return Chunks(places(), members); }

    // Calls line(address) for the lines of a chunk of a member's part: as much of each stretch.
    template <typename Line>
    void EachLine(int64_t chunk, int64_t member, int64_t members, const Line& line) const {
      const Places each = places();
      const int64_t count = Chunks(each, members);
      if (chunk >= count) return;
      for (const Place& place : each.of) {
        const int64_t piece = place.bytes / place.pieces, first = piece * member / members;
        const int64_t size = piece * (member + 1) / members - first;
        const int64_t lines = (size + kLine - 1) / kLine;
        for (int64_t number = 0; number < place.pieces; ++number) {
          const uintptr_t start = place.address + number * piece + first;
          const int64_t end = lines * (chunk + 1) / count;
          for (int64_t at = lines * chunk / count; at < end; ++at) line(start + at * kLine);
        }
      }
    }

   private:
    friend class ReadOrder;
    struct Place {
      uintptr_t address;
      int64_t bytes, pieces;
    };
    struct Places {
      Place of[Reads::kStretches];
    };

    Places places() const {
      Places found;
      for (int i = 0; i < Reads::kStretches; ++i) {
        found.of[i] = {address_[i].load(std::memory_order_relaxed),
                       bytes_[i].load(std::memory_order_relaxed),
                       pieces_[i].load(std::memory_order_relaxed)};
      }
      return found;
    }

    static int64_t Chunks(const Places& places, int64_t members) {
      int64_t bytes = 0;
      for (const Place& place : places.of) bytes += place.bytes;
      return (bytes / members + kChunk - 1) / kChunk;
    }

    std::atomic<uintptr_t> address_[Reads::kStretches] = {};
    std::atomic<int64_t> bytes_[Reads::kStretches] = {};
    std::atomic<int64_t> pieces_[Reads::kStretches] = {{1}, {1}, {1}};
    std::atomic<const Record*> next_{nullptr};
  };

  // Notes a loop; returns what was read after it the last time, null if that is unknown.
  const Record* Note(const Reads& reads) {
    Record& record = RecordOf(reads);
    if (last_ && last_->next() != &record) last_->next_.store(&record, std::memory_order_relaxed);
    last_ = &record;
    return record.next();
  }

 private:
  static constexpr uint64_t kRecords = 1024, kTries = 8;

  // The record of a loop: a new one takes the place of another where there is none left.
  Record& RecordOf(const Reads& reads) {
    const auto name = reinterpret_cast<uintptr_t>(reads.stretches[0].data);
    const uint64_t home = (uint64_t{name} >> 6) * 0x9e3779b97f4a7c15u >> 40;
    for (uint64_t turn = 0; turn < kTries; ++turn) {
      Record& record = records_[(home + turn) % kRecords];
      const uintptr_t known = record.address_[0].load(std::memory_order_relaxed);
      if (known == name || !known) return Written(record, reads, known != name);
    }
    return Written(records_[home % kRecords], reads, true);
  }

  static Record& Written(Record& record, const Reads& reads, bool is_new) {
    if (is_new) record.next_.store(nullptr, std::memory_order_relaxed);
    for (int i = 0; i < Reads::kStretches; ++i) {
      const Stretch& stretch = reads.stretches[i];
      record.address_[i].store(reinterpret_cast<uintptr_t>(stretch.data), std::memory_order_relaxed);
      record.bytes_[i].store(stretch.bytes, std::memory_order_relaxed);
      record.pieces_[i].store(stretch.pieces, std::memory_order_relaxed);
    }
    return record;
  }

  Record records_[kRecords];
  Record* last_ = nullptr;
};

// Asks for what one member of the loops will read: its parts of what they read one after the other, not
// more than its core's second cache holds beside other things.
class Fetcher {
 public:
  // Asks for a chunk of what comes from `upcoming` on; false if there is none to ask for.
  bool Ask(const ReadOrder::Record* upcoming, int64_t member, int64_t members) {
    if (!upcoming) return false;
    if (upcoming != first_) Begin(upcoming, members);
    if (asked_ >= kMostChunks) return false;
    if (chunk_ >= chunks_) {
      const ReadOrder::Record* after = at_->next();
      if (!after || after == first_) return false;
      at_ = after, chunk_ = 0, chunks_ = after->chunks(members);
    }
    at_->EachLine(chunk_, member, members, [](uintptr_t address) {
      __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
    });
    ++chunk_, ++asked_;
    return true;
  }

 private:
  static constexpr int64_t kMostChunks = 384, kMostLoops = 8;

  // Another loop is the next: what was asked for beyond its reads stays so.
  void Begin(const ReadOrder::Record* upcoming, int64_t members) {
    first_ = upcoming, asked_ = 0;
    const ReadOrder::Record* each = upcoming;
    for (int64_t loop = 0; loop < kMostLoops && each; ++loop, each = each->next()) {
      if (each == at_) {
        asked_ += chunk_;
        return;
      }
      asked_ += each->chunks(members);
    }
    at_ = upcoming, chunk_ = 0, chunks_ = upcoming->chunks(members), asked_ = 0;
  }

  const ReadOrder::Record* first_ = nullptr;
  const ReadOrder::Record* at_ = nullptr;
  // Chunks of `at_`: asked for, and all; and those from `first_` on that were asked for.
  int64_t chunk_ = 0, chunks_ = 0, asked_ = 0;
};

}  // namespace graphgen

#endif  // GRAPHGEN_READ_ORDER_H_
