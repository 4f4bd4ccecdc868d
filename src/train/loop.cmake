# The training loop, its guards, and what starts it: jobs, runs, trials, probe, evaluation.
list(APPEND TRAIN_SOURCES
  compile/compiled_package.cpp compile/compiled_step.cpp compile/operator_recorder.cpp compile/package_build.cpp compile/package_cache.cpp compile/package_proof.cpp compile/step_trace.cpp
  evaluate.cpp job.cpp lr_range.cpp probe.cpp signals.cpp training_run.cpp trial.cpp weights.cpp
  guards/drift_watch.cpp guards/guard_config.cpp guards/guarded_step.cpp guards/memory_guard.cpp guards/memory_watch.cpp guards/non_finite.cpp
  guards/operator_watch.cpp guards/precision_guard.cpp guards/replay.cpp guards/replay_copy.cpp
  job/loop_settings.cpp job/summary.cpp
  loop/cadence.cpp loop/early_stopping.cpp loop/log_window.cpp loop/looking.cpp loop/loop_state.cpp loop/recording.cpp loop/saving.cpp loop/trainer.cpp
  loop/training_state.cpp loop/validation.cpp
  optim/adam_kernel.cpp optim/ema.cpp optim/gradients.cpp optim/loss_scaler.cpp optim/optimizer.cpp optim/other_steps.cpp optim/parameter_rules.cpp optim/schedule.cpp
  options/exp_manager_options.cpp options/optim_options.cpp options/trainer_options.cpp
  run/followers.cpp run/predictions.cpp run/predictions_parquet.cpp run/rescue.cpp run/run_observer.cpp run/run_place.cpp run/run_state.cpp run/trial_loop.cpp
  ranks/backend.cpp ranks/equal_state.cpp ranks/follow_job.cpp ranks/gradient_buckets.cpp ranks/launch_facts.cpp ranks/launcher.cpp ranks/listen.cpp
  ranks/peer_table.cpp ranks/rank_agreement.cpp ranks/rank_group.cpp ranks/rank_watch.cpp ranks/ranks.cpp ranks/statistics_sum.cpp ranks/straggler_table.cpp run/run_start.cpp
  step/agreement.cpp step/batches.cpp step/eager_step.cpp step/step_engine.cpp step/step_feed.cpp step/noise_watch.cpp)
list(APPEND TRAIN_TESTS
  compile/compiled_step_test.cpp compile/operator_recorder_test.cpp compile/package_cache_test.cpp compile/package_proof_test.cpp
  guards/guards_test.cpp guards/precision_guard_test.cpp guards/watches_test.cpp
  loop/cadence_test.cpp loop/trainer_test.cpp
  optim/loss_scaler_test.cpp optim/optimizer_test.cpp optim/schedule_test.cpp options/options_test.cpp
  ranks/gradient_buckets_test.cpp ranks/launch_facts_test.cpp ranks/peer_table_test.cpp ranks/rank_agreement_test.cpp ranks/straggler_table_test.cpp
  step/eager_step_test.cpp lr_range_test.cpp run/followers_test.cpp run/predictions_test.cpp training_run_test.cpp step/noise_watch_test.cpp
  testing/example_task.cpp testing/harness.cpp testing/two_ranks.cpp)
# c10d's headers are large, and Gloo's stay in one file.
set_source_files_properties(ranks/backend.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
