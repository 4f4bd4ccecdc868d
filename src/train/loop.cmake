# The training loop, its guards, and what starts it: jobs, runs, trials, probe, evaluation.
list(APPEND TRAIN_SOURCES
  job.cpp job/loop_settings.cpp job/summary.cpp weights.cpp
  loop/batches.cpp loop/cadence.cpp loop/drift_watch.cpp loop/early_stopping.cpp loop/log_window.cpp loop/loop_state.cpp loop/memory_watch.cpp
  loop/non_finite.cpp loop/operator_watch.cpp loop/precision_guard.cpp loop/replay_copy.cpp signals.cpp
  loop/step_compute.cpp loop/step_feed.cpp loop/trainer.cpp loop/trainer_repair.cpp loop/trainer_step.cpp loop/validation.cpp
  optim/adam_kernel.cpp optim/ema.cpp optim/gradients.cpp optim/loss_scaler.cpp optim/optimizer.cpp optim/parameter_rules.cpp optim/schedule.cpp
  options/exp_manager_options.cpp options/optim_options.cpp options/trainer_options.cpp
  evaluate.cpp run/predictions_parquet.cpp probe.cpp run/rescue.cpp run/run_observer.cpp run/run_place.cpp run/run_state.cpp
  training_run.cpp trial.cpp)
list(APPEND TRAIN_TESTS
  loop/cadence_test.cpp loop/precision_guard_test.cpp loop/watches_test.cpp
  optim/loss_scaler_test.cpp optim/optimizer_test.cpp optim/schedule_test.cpp)
list(APPEND TRAIN_TESTS
  loop/guards_test.cpp loop/trainer_test.cpp options/options_test.cpp training_run_test.cpp
  testing/example_task.cpp testing/harness.cpp)
