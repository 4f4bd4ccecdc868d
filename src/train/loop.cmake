# The training loop, its phases and its guards.
list(APPEND TRAIN_SOURCES
  loop/cadence.cpp loop/drift_watch.cpp loop/early_stopping.cpp loop/precision_guard.cpp
  optim/ema.cpp optim/gradients.cpp optim/loss_scaler.cpp optim/optimizer.cpp optim/parameter_rules.cpp optim/schedule.cpp)
list(APPEND TRAIN_TESTS
  loop/cadence_test.cpp loop/precision_guard_test.cpp loop/watches_test.cpp
  optim/loss_scaler_test.cpp optim/optimizer_test.cpp optim/schedule_test.cpp)
