# What is made of embeddings: metrics, pictures, files.
set(here convnext/embedding)
list(APPEND MODELS_SOURCES
  ${here}/centroids.cpp ${here}/class_order.cpp ${here}/distance_rows.cpp ${here}/kmeans.cpp
  ${here}/mutual_information.cpp ${here}/neighbours.cpp ${here}/separation.cpp ${here}/embedding_monitor.cpp
  ${here}/embedding_store.cpp ${here}/options.cpp ${here}/pca.cpp ${here}/pictures.cpp ${here}/projector.cpp
  ${here}/tsne.cpp)
list(APPEND MODELS_TESTS
  ${here}/kmeans_test.cpp ${here}/neighbours_test.cpp ${here}/separation_test.cpp ${here}/embedding_monitor_test.cpp
  ${here}/tsne_test.cpp)
