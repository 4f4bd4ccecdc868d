# The training loop, its phases and its guards.
list(APPEND TRAIN_SOURCES
  loop/batches.cpp loop/cadence.cpp loop/drift_watch.cpp loop/early_stopping.cpp loop/log_window.cpp loop/loop_state.cpp
  loop/non_finite.cpp loop/operator_watch.cpp loop/precision_guard.cpp loop/signals.cpp loop/snapshot.cpp
  loop/step_compute.cpp loop/step_feed.cpp loop/trainer.cpp loop/trainer_repair.cpp loop/trainer_step.cpp loop/validation.cpp
  optim/ema.cpp optim/gradients.cpp optim/loss_scaler.cpp optim/optimizer.cpp optim/parameter_rules.cpp optim/schedule.cpp
  options/exp_manager_options.cpp options/optim_options.cpp options/trainer_options.cpp)
list(APPEND TRAIN_TESTS
  loop/cadence_test.cpp loop/precision_guard_test.cpp loop/watches_test.cpp
  optim/loss_scaler_test.cpp optim/optimizer_test.cpp optim/schedule_test.cpp)
