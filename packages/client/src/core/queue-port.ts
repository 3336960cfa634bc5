export interface QueuePort { placeholder: true }
