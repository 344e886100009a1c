"""Checks for other backends, by a control group of our own beside the backend.

wrapping, traits                                                      when the check is used, and what a
                                                                      backend declares
checked_engine, checked_pending, start_queue, worker_threads, block   ops after their agreements, watched
control, agreement, description_table, array_facts                    the ranks agree, without reading arrays
messages, message_header, message_way                                 point to point, by a header beside each
                                                                      message; by which communicator it goes
backend_error                                                         what is raised for an error of the
                                                                      backend
call_facts                                                            what the ranks of another backend must
                                                                      agree on before an op, from its arrays
"""
