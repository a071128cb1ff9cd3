/* What cppcheck has to know of jansson, whose headers it does not read. */
#define json_array_foreach(array, i, value) for (i = 0; (value = json_array_get(array, i)); i++)
#define json_object_foreach(object, key, value) while (json_next(object, &key, &value))
#define json_object_foreach_safe(object, next, key, value) while (json_next(object, &key, &value))
