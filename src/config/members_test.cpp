// Types, ranges, units and choices of single values.
#include <gtest/gtest.h>

#include "config/testing/example_job.h"
#include "config/testing/test_files.h"
#include "config/yaml_writer.h"

namespace redline::config {
namespace {

using testing::config_error;

std::string bound(const std::string& path, const std::string& yaml_value) {
  example::Job job;
  Node request = Node::map();
  request.set_path(path, *read_yaml_text("v: " + yaml_value, "x.yaml").find("v"));
  return write_yaml_flow(bind(request, job.schema).find(path)->value);
}
std::string binding_error(const std::string& path, const std::string& yaml_value) {
  return config_error([&] { bound(path, yaml_value); });
}

TEST(Members, ValuesInTheirForms) {
  struct Case {
    const char *path, *given, *held;
  };
  for (const Case& c : {Case{"trainer.max_steps", "1e5", "100000"},
                        {"trainer.max_steps", "1_000", "1000"},
                        {"trainer.gradient_clip_val", "1e-3", "0.001"},
                        {"trainer.gradient_clip_val", ".inf", "inf"},
                        {"trainer.gradient_clip_val", "5", "5"},
                        {"trainer.detect_anomaly", "yes", "true"},
                        {"trainer.detect_anomaly", "Off", "false"},
                        {"trainer.precision", "16", "\"16\""},
                        {"trainer.precision", "'bf16-mixed'", "bf16-mixed"},
                        {"trainer.devices", "auto", "auto"},
                        {"trainer.devices", "-1", "-1"},
                        {"trainer.limit_val_batches", "null", "null"},
                        {"trainer.limit_val_batches", "0.5", "0.5"},
                        {"trainer.save_every_seconds", "3m", "180"},
                        {"trainer.save_every_seconds", "00:00:10:00", "600"},
                        {"trainer.save_every_seconds", "90", "90"},
                        {"trainer.max_buffer_bytes", "512MiB", "536870912"},
                        {"model.encoder.att_context_size", "[-1, 5]", "[-1, 5]"},
                        {"model.encoder.att_contexts", "[[1, 2], [3]]", "[[1, 2], [3]]"},
                        {"model.encoder.att_contexts", "[]", "[]"},
                        {"model.train_ds.manifest_filepath", "/data/a.json", "[/data/a.json]"},
                        {"model.train_ds.manifest_filepath", "[a, b]", "[a, b]"},
                        {"model.extra", "{a: [1, {b: null}]}", "{a: [1, {b: null}]}"},
                        {"name", "7", "\"7\""}}) {
    EXPECT_EQ(bound(c.path, c.given), c.held) << c.path << ": " << c.given;
  }
}

TEST(Members, EachWayToBeWrongHasItsSentence) {
  struct Case {
    const char *path, *given, *sentence;
  };
  for (const Case& c : {
           Case{"trainer.max_steps", "many", "trainer.max_steps must be an integer of at least -1, found 'many'."},
           Case{"trainer.max_steps", "1.5", "trainer.max_steps must be an integer of at least -1, found '1.5'."},
           Case{"trainer.max_steps", "'5'",
                "trainer.max_steps must be an integer of at least -1, found the string '5'."},
           Case{"trainer.max_steps", "-2", "trainer.max_steps must be an integer of at least -1, found '-2'."},
           Case{"trainer.max_steps", "[1]", "trainer.max_steps must be an integer of at least -1, found a list of 1."},
           Case{"trainer.max_steps", "~",
                "trainer.max_steps must be an integer of at least -1, found null; leave the key out to get the "
                "default."},
           Case{"trainer.accumulate_grad_batches", "3000000000",
                "trainer.accumulate_grad_batches must be between -2147483648 and 2147483647, found '3000000000'."},
           Case{"trainer.detect_anomaly", "1", "trainer.detect_anomaly must be true or false, found '1'."},
           Case{"trainer.detect_anomaly", "'true'",
                "trainer.detect_anomaly must be true or false, found the string 'true'."},
           Case{"trainer.gradient_clip_val", "nan",
                "trainer.gradient_clip_val must be a number of at least 0, found 'nan'."},
           Case{"trainer.precision", "bf16_mixed",
                "trainer.precision must be one of 32-true, 32, 16-mixed, 16, bf16-mixed, found 'bf16_mixed'; did you "
                "mean "
                "'bf16-mixed'?"},
           Case{"trainer.precision", "float8",
                "trainer.precision must be one of 32-true, 32, 16-mixed, 16, bf16-mixed, found 'float8'."},
           Case{"trainer.limit_val_batches", "1.5",
                "trainer.limit_val_batches must be a number from 0 to 1, or null, found '1.5'."},
           Case{"trainer.save_every_seconds", "soon",
                "trainer.save_every_seconds must be a number above 0 in seconds (also as 90s or 1h30m), found 'soon'."},
           Case{"trainer.save_every_seconds", "0",
                "trainer.save_every_seconds must be a number above 0 in seconds (also as 90s or 1h30m), found '0'."},
           Case{"model.train_ds.num_workers", "fast",
                "model.train_ds.num_workers must be an integer from 0 to 256, or auto, found 'fast'."},
           Case{"model.encoder.dropout", "1.0",
                "model.encoder.dropout must be a number of at least 0 and below 1, found '1.0'."},
           Case{"model.encoder.att_context_size", "5",
                "model.encoder.att_context_size must be a list of integers of at least -1, found '5'."},
           Case{"model.encoder.att_context_size", "[a]",
                "model.encoder.att_context_size must be a list of integers of at least -1, found 'a'."},
           Case{"model.encoder.att_contexts", "[1]",
                "model.encoder.att_contexts must be a list of lists of integers, found '1'."},
           Case{"model.sample_rate", "fast", "model.sample_rate must be an integer of at least 1 in Hz, found 'fast'."},
           Case{"model.train_ds.manifest_filepath", "{a: 1}",
                "model.train_ds.manifest_filepath must be a list of strings, found a map of 1."},
       }) {
    const std::string error = binding_error(c.path, c.given);
    EXPECT_EQ(error.substr(0, 7), "x.yaml:") << error;
    EXPECT_EQ(error.substr(error.find(": ") + 2), c.sentence);
  }
}

TEST(Members, AFlagMayWriteAListWithCommas) {
  example::Job job;
  job.read_words({"--model.optim.betas", "0.9, 0.98", "manifest_filepath=a.json,b.json"});
  EXPECT_EQ(job.optim.betas, (std::vector<double>{0.9, 0.98}));
  EXPECT_EQ(job.train_ds.manifest_filepath, (std::vector<std::string>{"a.json", "b.json"}));
  job.read_words({"manifest_filepath='a.json,b.json'"});
  EXPECT_EQ(job.train_ds.manifest_filepath, (std::vector<std::string>{"a.json,b.json"}));
}

TEST(Members, LongAndHostileValuesAreShortAndSafeInMessages) {
  const std::string error = binding_error("trainer.max_steps", "\"" + std::string(500, 'x') + "\\e[2J\"");
  EXPECT_LT(error.size(), 200u);
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace redline::config
