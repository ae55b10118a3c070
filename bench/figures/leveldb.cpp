// The three write benchmarks of db_bench for LevelDB, which Debian ships without one.
//
// leveldb FOLDER fillseq|fillrandom|overwrite RECORDS VALUE_BYTES: keys of 16 digits, values that do
// not compress (compression is off besides), then waits until compaction rests.

#include <leveldb/db.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

static int failed(const leveldb::Status& status) {
    std::fprintf(stderr, "leveldb: %s\n", status.ToString().c_str());
    return 1;
}

// Compaction has no call that waits for it: its tables stay the same for two seconds.
static void rest(leveldb::DB* db) {
    std::string before, now;
    for (int quiet = 0; quiet < 20;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        db->GetProperty("leveldb.sstables", &now);
        quiet = now == before ? quiet + 1 : 0;
        before = now;
    }
}

int main(int count, char** words) {
    if (count != 5) {
        std::fprintf(stderr, "leveldb FOLDER fillseq|fillrandom|overwrite RECORDS VALUE_BYTES\n");
        return 2;
    }
    const bool in_order = std::strcmp(words[2], "fillseq") == 0;
    const unsigned long records = std::strtoul(words[3], nullptr, 10);
    const size_t bytes = std::strtoul(words[4], nullptr, 10);
    leveldb::Options options;
    options.create_if_missing = true;
    options.compression = leveldb::kNoCompression;
    // As much as RocksDB has by default.
    options.write_buffer_size = 64 << 20;
    leveldb::DB* opened = nullptr;
    leveldb::Status status = leveldb::DB::Open(options, words[1], &opened);
    if (!status.ok()) return failed(status);
    std::unique_ptr<leveldb::DB> db(opened);
    std::mt19937_64 random(7);
    std::string pool(1 << 20, 0);
    for (char& byte : pool) byte = static_cast<char>(random());
    const auto start = std::chrono::steady_clock::now();
    for (unsigned long at = 0; at < records; ++at) {
        char key[17];
        std::snprintf(key, sizeof key, "%016lu", in_order ? at : random() % records);
        const leveldb::Slice value(pool.data() + random() % (pool.size() - bytes), bytes);
        status = db->Put(leveldb::WriteOptions(), leveldb::Slice(key, 16), value);
        if (!status.ok()) return failed(status);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rest(db.get());
    std::printf("%.3f\n", seconds.count());
    return 0;
}
